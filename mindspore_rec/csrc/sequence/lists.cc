// SPDX-License-Identifier: Apache-2.0
#include "sequence/lists.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace msrec {
namespace {

constexpr double kTasks = 64.0;
// The part of the work that does not depend on a list's length: the same amount for each list and,
// in an attention, for each row. The unit is the work of one row.
constexpr double kFixedWork = 16.0;

double WorkOf(int64_t length, Work work) {
  const double n = static_cast<double>(length);
  return kFixedWork + n * (work == Work::kSquare ? n + kFixedWork : 1.0);
}

}  // namespace

Lists::Lists(const int64_t* offsets, int64_t count, int64_t values)
    : offsets_(offsets), count_(count), values_(values) {
  const auto refuse = [](const std::string& what) {
    throw std::invalid_argument("offsets " + what);
  };
  if (count < 0) refuse("must have at least one element");
  if (offsets[0] != 0) refuse("must begin with 0, got " + std::to_string(offsets[0]));
  for (int64_t i = 0; i < count; ++i) {
    if (offsets[i + 1] < offsets[i]) {
      refuse("must not decrease, got " + std::to_string(offsets[i]) + " and " +
             std::to_string(offsets[i + 1]) + " at place " + std::to_string(i));
    }
    longest_ = std::max(longest_, offsets[i + 1] - offsets[i]);
  }
  if (offsets[count] != values) {
    refuse("must end with the number of values, " + std::to_string(values) + ", got " +
           std::to_string(offsets[count]));
  }
}

int64_t Lists::ListOf(int64_t value) const {
  return std::upper_bound(offsets_, offsets_ + count_ + 1, value) - offsets_ - 1;
}

std::vector<ListTask> DivideLists(const Lists& lists, Work work) {
  double total = 0.0;
  for (int64_t i = 0; i < lists.count(); ++i) total += WorkOf(lists.length(i), work);
  const double least = total / kTasks;
  std::vector<std::pair<double, ListTask>> found;
  ListTask task{0, 0};
  double gathered = 0.0;
  for (int64_t i = 0; i < lists.count(); ++i) {
    gathered += WorkOf(lists.length(i), work);
    task.last = i + 1;
    if (gathered < least && task.last < lists.count()) continue;
    found.push_back({gathered, task});
    task = {i + 1, i + 1};
    gathered = 0.0;
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<ListTask> tasks;
  for (const auto& each : found) tasks.push_back(each.second);
  return tasks;
}

}  // namespace msrec
