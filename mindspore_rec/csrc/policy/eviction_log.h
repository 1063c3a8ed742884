// SPDX-License-Identifier: Apache-2.0
//
// EvictionLog: the evicted keys, with time and reason. The log always keeps the most recent
// evictions, to explain why a key has no row. While a caller collects evictions, the log keeps all
// evictions. Not thread safe; each object belongs to one shard.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "policy/eviction.h"
#include "util/append_log.h"

namespace msrec {

struct EvictedKey {
  int64_t key = 0;
  int64_t step = 0;
  uint32_t time = 0;
  EvictionReason reason = EvictionReason::kNone;
};

class EvictionLog {
 public:
  static constexpr size_t kRemembered = 1024;

  // Reserve memory so that the next n calls of Add cannot fail. Throws std::bad_alloc.
  void Reserve(size_t n) {
    const size_t wanted = std::min(kRemembered, recent_.size() + n);
    if (wanted > recent_.capacity()) {
      recent_.reserve(std::min(kRemembered, std::max(wanted, 2 * recent_.capacity())));
    }
    if (collecting_) collected_.Reserve(n);
  }
  void Add(const EvictedKey& evicted) {
    if (recent_.size() < kRemembered) {
      recent_.push_back(evicted);
    } else {
      recent_[next_] = evicted;
      next_ = (next_ + 1) % kRemembered;
    }
    if (collecting_) collected_.Add(evicted);
  }

  // Return the most recent logged eviction of `key`, or null if the log has no eviction of `key`.
  const EvictedKey* Find(int64_t key) const {
    for (size_t i = 0; i < recent_.size(); ++i) {
      const EvictedKey& each = recent_[(next_ + recent_.size() - 1 - i) % recent_.size()];
      if (each.key == key) return &each;
    }
    return nullptr;
  }

  void Collect(bool on) {
    collecting_ = on;
    if (!on) collected_.Clear();
  }
  bool collecting() const { return collecting_; }
  size_t collected() const { return collected_.size(); }
  // Append to `out` the evictions that were collected since the last call of Take.
  void Take(std::vector<EvictedKey>* out) {
    collected_.AppendTo(out);
    collected_.Clear();
  }

  size_t bytes() const { return (recent_.capacity() + collected_.size()) * sizeof(EvictedKey); }

 private:
  std::vector<EvictedKey> recent_;  // a ring buffer when full; next_ is the index of the oldest
                                    // eviction
  size_t next_ = 0;
  bool collecting_ = false;
  AppendLog<EvictedKey> collected_;
};

}  // namespace msrec
