// SPDX-License-Identifier: Apache-2.0
#include "sequence/attention.h"

#include <algorithm>
#include <vector>

#include "sequence/sequence_kernels.h"
#include "util/aligned.h"

namespace msrec {
namespace {

// Scratch memory for the loops of this thread.
float* LoopMemory(int64_t floats) {
  thread_local AlignedMemory memory;
  return static_cast<float*>(memory.AtLeast(sizeof(float) * static_cast<size_t>(floats)));
}

AttentionList ListOf(const AttentionForm& form, const Lists& lists, const float* qkv, int64_t i) {
  const int64_t begin = lists.begin(i);
  return {lists.length(i), qkv + begin * 3 * form.width(),
          form.times == nullptr ? nullptr : form.times + begin};
}

}  // namespace

void Attend(const AttentionForm& form, const Lists& lists, const float* qkv, float* output,
            ThreadPool* pool) {
  const SequenceKernels& kernels = ActiveSequenceKernels();
  ForTasks(DivideLists(lists, Work::kSquare), pool, [&](size_t, const ListTask& task) {
    for (int64_t i = task.first; i < task.last; ++i) {
      if (lists.length(i) == 0) continue;
      float* memory = LoopMemory(kernels.attention_memory(form, lists.length(i)));
      kernels.attend(form, ListOf(form, lists, qkv, i), output + lists.begin(i) * form.width(),
                     memory);
    }
  });
}

void AttendGradient(const AttentionForm& form, const Lists& lists, const float* qkv,
                    const float* of_output, const AttentionGradient& gradient, ThreadPool* pool) {
  const SequenceKernels& kernels = ActiveSequenceKernels();
  const std::vector<ListTask> tasks = DivideLists(lists, Work::kSquare);
  const size_t distances = form.by_distance == nullptr ? 0 : static_cast<size_t>(form.distances);
  const size_t buckets = form.by_time == nullptr ? 0 : static_cast<size_t>(form.buckets);
  const size_t sums_of_task = distances + static_cast<size_t>(kTimeLanes) * buckets;
  std::vector<float> partial(tasks.size() * sums_of_task);
  ForTasks(tasks, pool, [&](size_t t, const ListTask& task) {
    float* sums = partial.data() + t * sums_of_task;
    for (int64_t i = task.first; i < task.last; ++i) {
      if (lists.length(i) == 0) continue;
      float* memory = LoopMemory(kernels.attention_memory(form, lists.length(i)));
      kernels.attend_gradient(
          form, ListOf(form, lists, qkv, i), of_output + lists.begin(i) * form.width(),
          gradient.qkv + lists.begin(i) * 3 * form.width(), {sums, sums + distances}, memory);
    }
  });
  std::fill_n(gradient.by_distance, distances, 0.0f);
  std::fill_n(gradient.by_time, buckets, 0.0f);
  for (size_t t = 0; t < tasks.size(); ++t) {
    const float* sums = partial.data() + t * sums_of_task;
    for (size_t d = 0; d < distances; ++d) gradient.by_distance[d] += sums[d];
    for (size_t k = 0; k < static_cast<size_t>(kTimeLanes) * buckets; ++k) {
      gradient.by_time[k % buckets] += sums[distances + k];
    }
  }
}

}  // namespace msrec
