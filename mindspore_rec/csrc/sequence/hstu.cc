// SPDX-License-Identifier: Apache-2.0
#include "sequence/hstu.h"

#include <algorithm>
#include <vector>

#include "util/aligned.h"

namespace msrec {
namespace {

float* GateMemory(int64_t floats) {
  thread_local AlignedMemory memory;
  return static_cast<float*>(memory.AtLeast(sizeof(float) * static_cast<size_t>(floats)));
}

AttentionList ProjectedList(const AttentionForm& form, const Lists& lists, const float* projected,
                            int64_t i) {
  const int64_t begin = lists.begin(i);
  return {lists.length(i), projected + begin * 4 * form.width(),
          form.times == nullptr ? nullptr : form.times + begin};
}

}  // namespace

void GatedAttend(const AttentionForm& form, const RowScales& norm, const Lists& lists,
                 const float* projected, float* attended, float* output, ThreadPool* pool) {
  const SequenceKernels& kernels = ActiveSequenceKernels();
  ForTasks(DivideLists(lists, Work::kSquare), pool, [&](size_t, const ListTask& task) {
    for (int64_t i = task.first; i < task.last; ++i) {
      if (lists.length(i) == 0) continue;
      float* memory = GateMemory(kernels.gated_memory(form, lists.length(i)));
      const int64_t at = lists.begin(i) * form.width();
      kernels.gated_attend(form, ProjectedList(form, lists, projected, i), norm, attended + at,
                           output + at, memory);
    }
  });
}

void GatedAttendGradient(const AttentionForm& form, const RowScales& norm, const Lists& lists,
                         const GatedRows& rows, const float* of_output,
                         const GatedGradient& gradient, ThreadPool* pool) {
  const SequenceKernels& kernels = ActiveSequenceKernels();
  const std::vector<ListTask> tasks = DivideLists(lists, Work::kSquare);
  const size_t width = static_cast<size_t>(form.width());
  const size_t distances = form.by_distance == nullptr ? 0 : static_cast<size_t>(form.distances);
  const size_t buckets = form.by_time == nullptr ? 0 : static_cast<size_t>(form.buckets);
  const size_t lanes = static_cast<size_t>(kTimeLanes) * buckets;
  const size_t sums_of_task = 2 * width + distances + lanes;
  std::vector<float> partial(tasks.size() * sums_of_task);
  ForTasks(tasks, pool, [&](size_t t, const ListTask& task) {
    float* sums = partial.data() + t * sums_of_task;
    float* of_distances = sums + 2 * width;
    for (int64_t i = task.first; i < task.last; ++i) {
      if (lists.length(i) == 0) continue;
      float* memory = GateMemory(kernels.gated_memory(form, lists.length(i)));
      const int64_t at = lists.begin(i) * form.width();
      kernels.gated_attend_gradient(form, ProjectedList(form, lists, rows.projected, i), norm,
                                    rows.attended + at, of_output + at, gradient.projected + 4 * at,
                                    {{of_distances, of_distances + distances}, sums, sums + width},
                                    memory);
    }
  });
  std::fill_n(gradient.scale, width, 0.0f);
  std::fill_n(gradient.shift, width, 0.0f);
  std::fill_n(gradient.by_distance, distances, 0.0f);
  std::fill_n(gradient.by_time, buckets, 0.0f);
  for (size_t t = 0; t < tasks.size(); ++t) {
    const float* sums = partial.data() + t * sums_of_task;
    for (size_t c = 0; c < width; ++c) {
      gradient.scale[c] += sums[c];
      gradient.shift[c] += sums[width + c];
    }
    const float* of_distances = sums + 2 * width;
    for (size_t d = 0; d < distances; ++d) gradient.by_distance[d] += of_distances[d];
    for (size_t k = 0; k < lanes; ++k) gradient.by_time[k % buckets] += of_distances[distances + k];
  }
}

}  // namespace msrec
