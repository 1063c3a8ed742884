// SPDX-License-Identifier: Apache-2.0
//
// DigestSums: the sum of the digests of a shard's rows. The sum excludes rows that are due for
// eviction. If rows are evicted by age, a row becomes due for eviction without a write, as time
// passes. In a table that evicts rows by age, the class stores a separate sum for each time of last
// use. The class also records for each row in host memory which sum includes the row's digest. The
// method Sum adds up only the sums of rows that are not due for eviction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "policy/eviction.h"

namespace msrec {

class DigestSums {
 public:
  DigestSums() = default;
  // Keeps one sum per time of last use if `eviction` limits the age of rows.
  explicit DigestSums(const Eviction& eviction)
      : by_steps_(eviction.max_idle_steps >= 0), by_seconds_(eviction.max_idle_seconds >= 0) {}

  // True if there is a separate sum for each time of last use. If by_age() is false, there is one
  // sum of all rows, which needs no memory per row.
  bool by_age() const { return by_steps_ || by_seconds_; }

  void Clear() noexcept {
    all_ = 0;
    of_.clear();
    recent_.Clear();
    std::vector<uint64_t>().swap(seen_);  // assigning {} would keep the memory
  }

  // Reserve memory for places below `end`. Throws std::bad_alloc.
  void Reserve(size_t end) {
    if (by_age() && seen_.size() < end) seen_.resize(end);
  }
  // Methods that change a sum may throw std::bad_alloc; the sums are then wrong.

  // Subtract `before`, the old digest of the row in `place`. Add `after`, the row's new digest. The
  // time of last use in `meta` selects the sum.
  void Replace(uint32_t place, uint64_t before, uint64_t after, const RowMeta& meta) {
    if (!by_age()) {
      Replace(before, after);
      return;
    }
    const uint64_t seen = Seen(meta);
    Add(seen, after);
    Add(seen_[place], -before);
    seen_[place] = seen;
  }
  // Subtract the old digest `before` of a row, and add the new digest `after`. Requires !by_age().
  void Replace(uint64_t before, uint64_t after) noexcept { all_ += after - before; }
  // Prefetch the memory that a call of Replace for the same place will change.
  void Prefetch(uint32_t place) const {
    if (place < seen_.size()) __builtin_prefetch(seen_.data() + place, 1);
  }
  // Record which sum includes the digest of the new row in `place`.
  void Place(uint32_t place, const RowMeta& meta) noexcept {
    if (by_age()) seen_[place] = Seen(meta);
  }
  void Remove(uint32_t place, uint64_t digest) {
    if (by_age()) {
      Add(seen_[place], -digest);
    } else {
      all_ -= digest;
    }
  }
  // Add or subtract the digest of a row that is not in host memory. AddBelow adds the digest to the
  // sum for the row's last use, and RemoveBelow subtracts the digest.
  void AddBelow(const RowMeta& meta, uint64_t digest) {
    if (by_age()) {
      Add(Seen(meta), digest);
    } else {
      all_ += digest;
    }
  }
  void RemoveBelow(const RowMeta& meta, uint64_t digest) { AddBelow(meta, -digest); }

  // Return the sum of the digests of rows for which due(metadata) is false. In the metadata, only
  // the fields that affect eviction are set: the last step, the last second, or both fields.
  template <typename Fn>
  uint64_t Sum(const Fn& due) const {
    if (!by_age()) return all_;
    uint64_t sum = 0;
    for (const auto& [seen, each] : of_) {
      RowMeta meta{};
      meta.last_step = static_cast<uint32_t>(seen >> 32);
      meta.last_time = static_cast<uint32_t>(seen);
      if (!due(meta)) sum += each;
    }
    return sum;
  }

  size_t bytes() const {
    constexpr size_t kNode = 4 * sizeof(void*) + 2 * sizeof(uint64_t);  // bytes of a map's node
    return seen_.capacity() * sizeof(uint64_t) + of_.size() * kNode;
  }

 private:
  // Return the key of a row's sum in `of_`. The key omits fields that do not affect the row's
  // eviction, so that there are few sums.
  uint64_t Seen(const RowMeta& meta) const {
    return (by_steps_ ? uint64_t{meta.last_step} << 32 : 0) | (by_seconds_ ? meta.last_time : 0);
  }
  void Add(uint64_t seen, uint64_t digest) {
    if (digest == 0) return;
    Recent::Sum& at = recent_.of(seen);
    if (at.sum == nullptr || at.seen != seen) at = {seen, &of_.try_emplace(seen, 0).first->second};
    *at.sum += digest;
    if (*at.sum != 0) return;
    at.sum = nullptr;
    of_.erase(seen);
  }

  // A cache of pointers to the recently used sums in the map `of_`. Most rows share a few times of
  // last use, so the map is rarely searched.
  class Recent {
   public:
    struct Sum {
      uint64_t seen = 0;
      uint64_t* sum = nullptr;
    };
    Recent() = default;
    // In a copied map, the sums have other addresses, so the pointers are not copied.
    Recent(const Recent&) noexcept {}
    Recent& operator=(const Recent&) noexcept {
      Clear();
      return *this;
    }
    void Clear() noexcept {
      for (Sum& each : sums_) each = {};
    }
    // Successive steps, and successive seconds, map to different elements of sums_.
    Sum& of(uint64_t seen) { return sums_[(seen ^ seen >> 32) % kSums]; }

   private:
    static constexpr size_t kSums = 64;
    Sum sums_[kSums];
  };

  bool by_steps_ = false, by_seconds_ = false;
  uint64_t all_ = 0;  // sum of all rows if nothing is evicted by age
  // Sums by time of last use. The upper half of a key is the last step, and the lower half is the
  // last second. The map is ordered, not hashed, so that seconds chosen by users cause no
  // collisions. The map has no entries for sums that are 0.
  std::map<uint64_t, uint64_t> of_;
  Recent recent_;
  std::vector<uint64_t> seen_;  // for each place, the time of the sum that includes the row
};

}  // namespace msrec
