// SPDX-License-Identifier: Apache-2.0
#include "sequence/places.h"

#include <algorithm>
#include <vector>

namespace msrec {
namespace {

int64_t BucketOf(int64_t newest, int64_t time, int64_t buckets) {
  const uint64_t difference = static_cast<uint64_t>(newest) - static_cast<uint64_t>(time);
  if (static_cast<int64_t>(difference) <= 0) return 0;
  return std::min<int64_t>(64 - __builtin_clzll(difference), buckets - 1);
}

// Calls fn(value, place) for the values of a list.
template <typename Fn>
void ForPlaces(const PlaceForm& form, const Lists& lists, int64_t list, const Fn& fn) {
  const int64_t begin = lists.begin(list);
  const int64_t newest = begin + lists.length(list) - 1;
  for (int64_t j = begin; j <= newest; ++j) {
    fn(j, form.times == nullptr ? std::min(newest - j, form.places - 1)
                                : BucketOf(form.times[newest], form.times[j], form.places));
  }
}

}  // namespace

void AddPlaces(const PlaceForm& form, const Lists& lists, const float* values, const float* table,
               float* output, ThreadPool* pool) {
  ForTasks(DivideLists(lists, Work::kLength), pool, [&](size_t, const ListTask& task) {
    for (int64_t i = task.first; i < task.last; ++i) {
      ForPlaces(form, lists, i, [&](int64_t j, int64_t place) {
        const float* x = values + j * form.dim;
        const float* row = table + place * form.dim;
        float* out = output + j * form.dim;
        for (int64_t c = 0; c < form.dim; ++c) out[c] = x[c] + row[c];
      });
    }
  });
}

void PlaceGradient(const PlaceForm& form, const Lists& lists, const float* of_output,
                   float* of_table, ThreadPool* pool) {
  // Sort the values by place with a counting sort, which keeps the order of values with the same
  // place.
  std::vector<int64_t> ends(static_cast<size_t>(form.places) + 1);
  std::vector<int64_t> sorted(static_cast<size_t>(lists.values()));
  for (int64_t i = 0; i < lists.count(); ++i) {
    ForPlaces(form, lists, i, [&](int64_t, int64_t place) { ++ends[place + 1]; });
  }
  for (int64_t p = 0; p < form.places; ++p) ends[p + 1] += ends[p];
  for (int64_t i = 0; i < lists.count(); ++i) {
    ForPlaces(form, lists, i, [&](int64_t j, int64_t place) { sorted[ends[place]++] = j; });
  }
  pool->ParallelFor(form.places, [&](int64_t p) {
    float* sum = of_table + p * form.dim;
    std::fill_n(sum, form.dim, 0.0f);
    for (int64_t k = p == 0 ? 0 : ends[p - 1]; k < ends[p]; ++k) {
      const float* g = of_output + sorted[k] * form.dim;
      for (int64_t c = 0; c < form.dim; ++c) sum[c] += g[c];
    }
  });
}

}  // namespace msrec
