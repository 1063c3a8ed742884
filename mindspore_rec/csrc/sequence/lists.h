// SPDX-License-Identifier: Apache-2.0
//
// Lists of a batch, by their offsets, and their division into tasks of similar work. The division
// depends on the lists only, so sums over tasks in the tasks' order have the same bits for any
// number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "util/thread_pool.h"

namespace msrec {

class Lists {
 public:
  // Throws unless offsets[0] is 0, the offsets never decrease, and the last of them is `values`.
  Lists(const int64_t* offsets, int64_t count, int64_t values);

  int64_t count() const { return count_; }
  int64_t values() const { return values_; }
  int64_t begin(int64_t i) const { return offsets_[i]; }
  int64_t length(int64_t i) const { return offsets_[i + 1] - offsets_[i]; }
  int64_t longest() const { return longest_; }

 private:
  const int64_t* offsets_;
  int64_t count_, values_;
  int64_t longest_ = 0;
};

// Consecutive lists [first, last).
struct ListTask {
  int64_t first, last;
};

// Growth of the work of a list with its length.
enum class Work { kLength, kSquare };

// Returns at most about 64 tasks, and one more for each list that is long for the batch.
std::vector<ListTask> DivideLists(const Lists& lists, Work work);

// Runs fn(index, task) for each task in parallel. The tasks of most work begin first.
template <typename Fn>
void ForTasks(const std::vector<ListTask>& tasks, ThreadPool* pool, const Fn& fn) {
  pool->ParallelFor(static_cast<int64_t>(tasks.size()),
                    [&](int64_t t) { fn(static_cast<size_t>(t), tasks[static_cast<size_t>(t)]); });
}

}  // namespace msrec
