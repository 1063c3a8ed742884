// SPDX-License-Identifier: Apache-2.0
//
// These functions do only the memory accesses of an embedding step. The time of the memory accesses
// is the machine's lower bound for an embedding step. The benchmark compiles this file with the
// machine's own instruction set.
//
//   gather   read the value of each distinct row at a known random address, write it out once a
//   lookup update   read, change and write value and two moments of each distinct row (Adam's
//   arithmetic)
//
// The distinct rows, and the map from lookups to rows, are inputs. The lower bound includes no
// hashing, summing or search. If with_probe is set, gather first reads one random cache line per
// distinct row, as any hash index must.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace {

template <typename Fn>
void Split(int threads, size_t n, Fn fn) {
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t)
    others.emplace_back([=] { fn(n * t / threads, n * (t + 1) / threads); });
  fn(0, n / threads);
  for (auto& other : others) other.join();
}

}  // namespace

// Row i starts at rows + i * stride and has a value, m and v of dim floats each. The array
// `distinct` contains n_distinct row numbers. For each of the n lookups, the array `inverse` has
// one index into `distinct`. The output is out [n, dim].
extern "C" void floor_gather(const float* rows, size_t stride, int dim, const int64_t* distinct,
                             size_t n_distinct, const int32_t* inverse, size_t n,
                             const uint64_t* index, size_t index_lines, int with_probe,
                             float* scratch, float* out, int threads) {
  Split(threads, n_distinct, [=](size_t begin, size_t end) {
    uint64_t sink = 0;
    for (size_t i = begin; i < end; ++i) {
      if (with_probe) {
        if (i + 24 < end)
          __builtin_prefetch(index +
                             (distinct[i + 24] * 11400714819323198485ull % index_lines) * 8);
        sink += index[(distinct[i] * 11400714819323198485ull % index_lines) * 8];
      }
      if (i + 12 < end) {
        const float* ahead = rows + distinct[i + 12] * stride;
        for (int j = 0; j < dim; j += 16) __builtin_prefetch(ahead + j);
      }
      std::memcpy(scratch + i * dim, rows + distinct[i] * stride, dim * sizeof(float));
    }
    if (sink == 1) scratch[begin * dim] += 1;
  });
  Split(threads, n, [=](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      std::memcpy(out + i * dim, scratch + static_cast<size_t>(inverse[i]) * dim,
                  dim * sizeof(float));
    }
  });
}

extern "C" void floor_update(float* rows, size_t stride, int dim, const int64_t* distinct,
                             size_t n_distinct, const float* grad, float lr, int threads) {
  Split(threads, n_distinct, [=](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (i + 6 < end) {
        const float* ahead = rows + distinct[i + 6] * stride;
        for (int j = 0; j < 3 * dim && j < 128; j += 16) __builtin_prefetch(ahead + j, 1);
      }
      float* __restrict w = rows + distinct[i] * stride;
      float* __restrict m = w + dim;
      float* __restrict v = m + dim;
      const float* __restrict g = grad + i * dim;
      for (int j = 0; j < dim; ++j) {
        m[j] = 0.9f * m[j] + 0.1f * g[j];
        v[j] = 0.999f * v[j] + 0.001f * g[j] * g[j];
        w[j] -= lr * m[j] / (std::sqrt(v[j]) + 1e-8f);
      }
    }
  });
}
