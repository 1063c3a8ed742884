// SPDX-License-Identifier: Apache-2.0
//
// ChangeLog: for each epoch, the keys of a shard that were written, looked up in training, or
// deleted. Recording begins with the first epoch. A row's `dirty` bit is set if its key is already
// recorded in the current epoch, so a frequent key adds only one entry per epoch. Not thread safe;
// each object belongs to one shard.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "rows/row_layout.h"
#include "util/append_log.h"

namespace msrec {

class ChangeLog {
 public:
  bool enabled() const { return !epochs_.empty(); }

  // Reserve memory so that the next n calls of Touch or Deleted cannot fail. Throws std::bad_alloc.
  void Reserve(size_t n) {
    if (enabled()) current_->Reserve(n);
  }

  void Touch(RowMeta* meta) {
    if (!enabled() || meta->dirty) return;
    current_->Add(meta->key);
    meta->dirty = 1;
  }
  void Deleted(int64_t key) {
    if (enabled()) current_->Add(key);
  }

  // Return the keys of the current epoch. Before the next Begin, the caller must clear the dirty
  // bits of these keys' rows.
  const AppendLog<int64_t>* current() const { return current_; }

  // Begin the epoch with number `epoch`, and drop the keys of all epochs before number `oldest`.
  void Begin(uint64_t epoch, uint64_t oldest) {
    current_ = &epochs_[epoch];
    Forget(oldest);
  }
  void Forget(uint64_t oldest) { epochs_.erase(epochs_.begin(), epochs_.lower_bound(oldest)); }
  void Disable() {
    epochs_.clear();
    current_ = nullptr;
  }

  // Append the keys of epoch `since` and of later epochs, sorted and without duplicates.
  void Collect(uint64_t since, std::vector<int64_t>* keys) const {
    const size_t first = keys->size();
    for (auto it = epochs_.lower_bound(since); it != epochs_.end(); ++it) {
      it->second.AppendTo(keys);
    }
    std::sort(keys->begin() + first, keys->end());
    keys->erase(std::unique(keys->begin() + first, keys->end()), keys->end());
  }

  size_t bytes() const {
    size_t total = 0;
    for (const auto& [epoch, keys] : epochs_) total += keys.size() * sizeof(int64_t);
    return total;
  }

 private:
  std::map<uint64_t, AppendLog<int64_t>> epochs_;
  AppendLog<int64_t>* current_ = nullptr;
};

}  // namespace msrec
