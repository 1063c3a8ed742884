// SPDX-License-Identifier: Apache-2.0
//
// TableTasks: lookups of several tables at once. Lookups of different tables run in parallel. The
// lookups of one table run one after another, so no result depends on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "util/thread_pool.h"

namespace msrec {

template <typename Id>  // of a table
class TableTasks {
 public:
  // Add a lookup. The lookups are numbered from 0, in the order of the calls of Add.
  void Add(const Id& table) {
    const auto same = std::find(tables_.begin(), tables_.end(), table);
    if (same == tables_.end()) {
      tables_.push_back(table);
      lookups_.push_back({next_++});
    } else {
      lookups_[same - tables_.begin()].push_back(next_++);
    }
  }
  // Call fn(number) once for each lookup, with the lookup's number.
  template <typename Fn>
  void ForEach(const Fn& fn) const {
    ThreadPool::Global().ParallelFor(static_cast<int64_t>(lookups_.size()), [&](int64_t task) {
      for (const size_t number : lookups_[task]) fn(number);
    });
  }

 private:
  std::vector<Id> tables_;
  std::vector<std::vector<size_t>> lookups_;  // by table
  size_t next_ = 0;
};

}  // namespace msrec
