// SPDX-License-Identifier: Apache-2.0
#include "sequence/pooling.h"

#include <algorithm>
#include <limits>

#include "sequence/sequence_kernels.h"

namespace msrec {
namespace {

// Calls fn(list, first value, last value + 1) for all lists in parallel.
template <typename Fn>
void ForLists(const Lists& lists, ThreadPool* pool, const Fn& fn) {
  ForTasks(DivideLists(lists, Work::kLength), pool, [&](size_t, const ListTask& task) {
    for (int64_t i = task.first; i < task.last; ++i) {
      fn(i, lists.begin(i), lists.begin(i) + lists.length(i));
    }
  });
}

}  // namespace

void PairValues(const Lists& lists, int64_t dim, const float* candidates, const float* values,
                float* pairs, ThreadPool* pool) {
  ForLists(lists, pool, [&](int64_t i, int64_t begin, int64_t end) {
    const float* candidate = candidates + i * dim;
    for (int64_t j = begin; j < end; ++j) {
      const float* value = values + j * dim;
      float* pair = pairs + j * 2 * dim;
      std::copy_n(value, dim, pair);
      for (int64_t c = 0; c < dim; ++c) pair[dim + c] = value[c] * candidate[c];
    }
  });
}

void PairValuesGradient(const Lists& lists, int64_t dim, const float* candidates,
                        const float* values, const float* of_pairs, float* of_candidates,
                        float* of_values, ThreadPool* pool) {
  ForLists(lists, pool, [&](int64_t i, int64_t begin, int64_t end) {
    const float* candidate = candidates + i * dim;
    float* of_candidate = of_candidates + i * dim;
    std::fill_n(of_candidate, dim, 0.0f);
    for (int64_t j = begin; j < end; ++j) {
      const float* value = values + j * dim;
      const float* g = of_pairs + j * 2 * dim;
      float* of_value = of_values + j * dim;
      for (int64_t c = 0; c < dim; ++c) {
        of_value[c] = g[c] + g[dim + c] * candidate[c];
        of_candidate[c] += g[dim + c] * value[c];
      }
    }
  });
}

void AddRows(const Lists& lists, int64_t width, const float* x, const float* rows, float* output,
             ThreadPool* pool) {
  ForLists(lists, pool, [&](int64_t i, int64_t begin, int64_t end) {
    const float* row = rows + i * width;
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t c = 0; c < width; ++c) output[j * width + c] = x[j * width + c] + row[c];
    }
  });
}

void SumRows(const Lists& lists, int64_t width, const float* x, float* rows, ThreadPool* pool) {
  ForLists(lists, pool, [&](int64_t i, int64_t begin, int64_t end) {
    float* row = rows + i * width;
    std::fill_n(row, width, 0.0f);
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t c = 0; c < width; ++c) row[c] += x[j * width + c];
    }
  });
}

void PoolValues(const PoolForm& form, const Lists& lists, const float* scores, const float* values,
                float* weights, float* sums, ThreadPool* pool) {
  const int64_t dim = form.dim;
  ForLists(lists, pool, [&](int64_t i, int64_t begin, int64_t end) {
    std::copy(scores + begin, scores + end, weights + begin);
    if (form.softmax) ActiveSequenceKernels().softmax_list(end - begin, weights + begin);
    float* sum = sums + i * dim;
    std::fill_n(sum, dim, 0.0f);
    for (int64_t j = begin; j < end; ++j) {
      const float weight = weights[j];
      const float* value = values + j * dim;
      for (int64_t c = 0; c < dim; ++c) sum[c] += weight * value[c];
    }
  });
}

void PoolValuesGradient(const PoolForm& form, const Lists& lists, const float* weights,
                        const float* values, const float* of_sums, float* of_scores,
                        float* of_values, ThreadPool* pool) {
  const int64_t dim = form.dim;
  ForLists(lists, pool, [&](int64_t i, int64_t begin, int64_t end) {
    const float* g = of_sums + i * dim;
    float mean = 0.0f;
    for (int64_t j = begin; j < end; ++j) {
      const float weight = weights[j];
      const float* value = values + j * dim;
      float* of_value = of_values + j * dim;
      for (int64_t c = 0; c < dim; ++c) of_value[c] = weight * g[c];
      of_scores[j] = ActiveSequenceKernels().dot(dim, value, g);
      mean += weight * of_scores[j];
    }
    if (!form.softmax) return;
    for (int64_t j = begin; j < end; ++j) of_scores[j] = weights[j] * (of_scores[j] - mean);
  });
}

}  // namespace msrec
