// SPDX-License-Identifier: Apache-2.0
#include "sequence/pooling.h"

#include <algorithm>

#include "sequence/sequence_kernels.h"

namespace msrec {
namespace {

// Calls fn(list, first value, number of values) for all lists in parallel.
template <typename Fn>
void ForLists(const Lists& lists, ThreadPool* pool, const Fn& fn) {
  ForTasks(DivideLists(lists, Work::kLength), pool, [&](size_t, const ListTask& task) {
    for (int64_t i = task.first; i < task.last; ++i) fn(i, lists.begin(i), lists.length(i));
  });
}

}  // namespace

void PoolValues(const PoolForm& form, const Lists& lists, const float* values, float* weights,
                float* sums, ThreadPool* pool) {
  const int64_t dim = form.dim;
  ForLists(lists, pool, [&](int64_t i, int64_t first, int64_t count) {
    const SequenceKernels& kernels = ActiveSequenceKernels();
    if (form.softmax) kernels.softmax_list(count, weights + first);
    float* sum = sums + i * dim;
    std::fill_n(sum, dim, 0.0f);
    kernels.sum_weighted(count, dim, weights + first, values + first * dim, sum);
  });
}

void PoolValuesGradient(const PoolForm& form, const Lists& lists, const float* weights,
                        const float* values, const float* of_sums, float* of_scores,
                        float* of_values, ThreadPool* pool) {
  const int64_t dim = form.dim;
  ForLists(lists, pool, [&](int64_t i, int64_t first, int64_t count) {
    const SequenceKernels& kernels = ActiveSequenceKernels();
    const float* g = of_sums + i * dim;
    kernels.weigh_rows(count, dim, weights + first, g, of_values + first * dim);
    kernels.dot_rows(count, dim, values + first * dim, g, 0.0f, of_scores + first);
    if (!form.softmax) return;
    float mean = 0.0f;
    for (int64_t j = first; j < first + count; ++j) mean += weights[j] * of_scores[j];
    for (int64_t j = first; j < first + count; ++j) {
      of_scores[j] = weights[j] * (of_scores[j] - mean);
    }
  });
}

}  // namespace msrec
