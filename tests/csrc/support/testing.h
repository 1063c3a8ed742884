// SPDX-License-Identifier: Apache-2.0
//
// Shared by the tests: seeded randomness, interesting keys, and the pool's size for a scope.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "util/thread_pool.h"

namespace msrec {

// Sanitized code is ten times slower: the same properties over fewer draws.
#ifdef MSREC_SANITIZED
constexpr size_t kFewer = 10;
#else
constexpr size_t kFewer = 1;
#endif

inline const std::vector<int64_t>& EdgeKeys() {
  static const std::vector<int64_t> keys = {0,
                                            -1,
                                            1,
                                            -2,
                                            std::numeric_limits<int64_t>::min(),
                                            std::numeric_limits<int64_t>::max(),
                                            std::numeric_limits<int64_t>::min() + 1,
                                            std::numeric_limits<int64_t>::max() - 1,
                                            int64_t{1} << 32,
                                            -(int64_t{1} << 32)};
  return keys;
}

// The keys first, first + 1, ..., last - 1.
inline std::vector<int64_t> Range(int64_t first, int64_t last) {
  std::vector<int64_t> keys;
  for (int64_t key = first; key < last; ++key) keys.push_back(key);
  return keys;
}

class Rng {
 public:
  explicit Rng(uint64_t seed) : engine_(seed) {}

  uint64_t Bits() { return engine_(); }
  // In [0, n).
  uint64_t Below(uint64_t n) { return engine_() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  float Float(float low, float high) {
    return low + (high - low) * static_cast<float>(engine_() >> 40) * 0x1p-24f;
  }
  // Few distinct keys, so that keys repeat; edge keys among them.
  int64_t Key(uint64_t distinct) {
    const uint64_t k = Below(distinct);
    if (k < EdgeKeys().size()) return EdgeKeys()[k];
    return static_cast<int64_t>(k * 0x9e3779b97f4a7c15ULL);
  }
  std::vector<int64_t> Keys(size_t n, uint64_t distinct) {
    std::vector<int64_t> keys(n);
    for (int64_t& key : keys) key = Key(distinct);
    return keys;
  }
  std::vector<float> Floats(size_t n, float low = -1.0f, float high = 1.0f) {
    std::vector<float> floats(n);
    for (float& f : floats) f = Float(low, high);
    return floats;
  }

 private:
  std::mt19937_64 engine_;
};

// Equal bits, not equal values: tells -0 from 0 and lets NaN equal itself.
inline bool SameBits(const float* a, const float* b, size_t n) {
  return n == 0 || std::memcmp(a, b, n * sizeof(float)) == 0;
}
inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && SameBits(a.data(), b.data(), a.size());
}

// Sizes the process-wide pool, and sizes it back at the end of the scope.
class Threads {
 public:
  explicit Threads(int n) : before_(ThreadPool::Global().num_threads()) {
    ThreadPool::Global().SetNumThreads(n);
  }
  ~Threads() { ThreadPool::Global().SetNumThreads(before_); }

 private:
  const int before_;
};

}  // namespace msrec
