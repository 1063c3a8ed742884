// SPDX-License-Identifier: Apache-2.0
//
// The lists of a batch, given by offsets, and the division of these lists into tasks for threads.
// The tasks depend only on the lists, so sums over the tasks, in the order of the tasks, are
// identical, bit for bit, for any number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "util/thread_pool.h"

namespace msrec {

class Lists {
 public:
  // Throws unless offsets[0] is 0, the offsets never decrease, and the last offset equals `values`.
  Lists(const int64_t* offsets, int64_t count, int64_t values);

  int64_t count() const { return count_; }
  int64_t values() const { return values_; }
  int64_t begin(int64_t i) const { return offsets_[i]; }
  int64_t length(int64_t i) const { return offsets_[i + 1] - offsets_[i]; }
  int64_t longest() const { return longest_; }
  // Returns the list that contains a value.
  int64_t ListOf(int64_t value) const;

 private:
  const int64_t* offsets_;
  int64_t count_, values_;
  int64_t longest_ = 0;
};

// Consecutive lists [first, last).
struct ListTask {
  int64_t first, last;
};

// The work of a list grows with the list's length, or with the square of the length.
enum class Work { kLength, kSquare };

// Returns at most 65 tasks; all tasks but one have at least 1/64 of the total work.
std::vector<ListTask> DivideLists(const Lists& lists, Work work);

// Runs fn(index, task) for each task in parallel. The tasks with the most work begin first.
template <typename Fn>
void ForTasks(const std::vector<ListTask>& tasks, ThreadPool* pool, const Fn& fn) {
  pool->ParallelFor(static_cast<int64_t>(tasks.size()),
                    [&](int64_t t) { fn(static_cast<size_t>(t), tasks[static_cast<size_t>(t)]); });
}

}  // namespace msrec
