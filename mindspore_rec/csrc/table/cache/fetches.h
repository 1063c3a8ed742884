// SPDX-License-Identifier: Apache-2.0
//
// Fetches: maps numbers to the prefetched batches that are not released yet. The prefetcher reads
// rows from lower tiers without the table's mutex. Because a row may change while the prefetcher
// reads the row, Fetches records every change of rows in lower tiers and invalidates the copies
// that were read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <vector>

namespace msrec {

// A batch whose rows are prefetched.
struct Fetch {
  int64_t number = 0;
  std::vector<int64_t> ids;
  bool ready = false;      // true if the rows are in host memory or the prefetch failed
  bool cancelled = false;  // true if the table was cleared or the rows got another layout
  std::exception_ptr error;
  std::vector<int64_t> absent;       // keys without a row in a lower tier, sorted
  std::vector<int64_t> invalidated;  // keys whose rows in lower tiers have changed since the read
  size_t sorted = 0;                 // the first `sorted` keys of `invalidated` are sorted

  bool Invalidated(int64_t key) {
    if (sorted != invalidated.size()) {
      std::sort(invalidated.begin(), invalidated.end());
      sorted = invalidated.size();
    }
    return std::binary_search(invalidated.begin(), invalidated.end(), key);
  }
};

class Fetches {
 public:
  size_t size() const { return fetches_.size(); }
  bool empty() const { return fetches_.empty(); }
  void Add(const std::shared_ptr<Fetch>& fetch) { fetches_.emplace(fetch->number, fetch); }
  // Return the batch with number `number`, or null.
  std::shared_ptr<Fetch> Find(int64_t number) const {
    const auto found = fetches_.find(number);
    return found == fetches_.end() ? nullptr : found->second;
  }
  void Erase(int64_t number) { fetches_.erase(number); }
  // Cancel and remove all batches up to number `number`.
  void ReleaseUpTo(int64_t number) {
    for (auto it = fetches_.begin(); it != fetches_.end() && it->first <= number;) {
      it->second->cancelled = true;
      it = fetches_.erase(it);
    }
  }

  // Record that the rows of these keys in lower tiers have changed. Throws std::bad_alloc.
  void Invalidate(const std::vector<int64_t>& keys) {
    for (auto& [number, fetch] : fetches_) {
      fetch->invalidated.insert(fetch->invalidated.end(), keys.begin(), keys.end());
    }
  }
  // Record that all rows in lower tiers have changed.
  void CancelAll() noexcept {
    for (auto& [number, fetch] : fetches_) fetch->cancelled = true;
  }
  // True if the prefetch of some batch has found that the lower tiers have no row of `key`.
  bool KnownAbsent(int64_t key) const {
    for (const auto& [number, fetch] : fetches_) {
      if (!fetch->ready || fetch->cancelled) continue;
      if (!std::binary_search(fetch->absent.begin(), fetch->absent.end(), key)) continue;
      if (!fetch->Invalidated(key)) return true;
    }
    return false;
  }

 private:
  std::map<int64_t, std::shared_ptr<Fetch>> fetches_;
};

}  // namespace msrec
