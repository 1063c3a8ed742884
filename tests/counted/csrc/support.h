// SPDX-License-Identifier: Apache-2.0
//
// Keys, rows and tables from fixed seeds, for the counted cases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "table/table.h"

namespace msrec {

constexpr int32_t kCountedDim = 16;

// SplitMix64 (Steele, Lea and Flood 2014): the same numbers on every machine and library.
class CountedRandom {
 public:
  explicit CountedRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  uint64_t Below(uint64_t n) { return Next() % n; }

 private:
  uint64_t state_;
};

inline IdView View(const std::vector<int64_t>& ids) { return {ids.data(), ids.size(), true}; }

// Return key number i of a table.
inline int64_t CountedKey(uint64_t i) { return static_cast<int64_t>(i * 0x9e3779b97f4a7c15ULL); }

inline std::vector<int64_t> CountedKeys(uint64_t first, uint64_t last) {
  std::vector<int64_t> keys;
  for (uint64_t i = first; i < last; ++i) keys.push_back(CountedKey(i));
  return keys;
}

// Return n ids of the first `keys` keys, low numbers more often.
inline std::vector<int64_t> CountedIds(size_t n, uint64_t keys, uint64_t seed) {
  CountedRandom random(seed);
  std::vector<int64_t> ids;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t limit = 1 + random.Below(keys);
    ids.push_back(CountedKey(random.Below(limit)));
  }
  return ids;
}

inline std::vector<float> CountedFloats(size_t n, uint64_t seed) {
  CountedRandom random(seed);
  std::vector<float> floats(n);
  for (float& x : floats) x = static_cast<float>(random.Next() >> 40) * 0x1p-24f - 0.5f;
  return floats;
}

inline TableConfig CountedConfig(const std::string& name) {
  TableConfig config;
  config.name = name;
  config.dim = kCountedDim;
  config.initializer.kind = InitKind::kNormal;
  config.initializer.b = 0.1f;
  config.seed = 1;
  return config;
}

// Put the first `keys` keys.
inline void FillTable(Table* table, uint64_t keys) {
  const std::vector<int64_t> all = CountedKeys(0, keys);
  table->Put(View(all), CountedFloats(keys * kCountedDim, 2).data(), keys);
}

}  // namespace msrec
