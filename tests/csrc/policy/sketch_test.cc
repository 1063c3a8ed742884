// SPDX-License-Identifier: Apache-2.0
//
// CountingSketch against exact counts.
#include "policy/sketch.h"

#include <gtest/gtest.h>

#include <map>

#include "testing.h"

namespace msrec {
namespace {

constexpr uint32_t kMax = CountingSketch::kMaxCount;

// Counts a random stream in both, of a few frequent keys and many rare ones.
std::map<int64_t, uint64_t> Count(CountingSketch* sketch, uint64_t seed, int occurrences) {
  Rng rng(seed);
  std::map<int64_t, uint64_t> exact;
  for (int i = 0; i < occurrences; ++i) {
    const int64_t key = rng.OneIn(2) ? rng.Key(30) : rng.Key(20000);
    const auto n = static_cast<uint32_t>(1 + rng.Below(3));
    sketch->Add(HashKey(key), 0, n);
    exact[key] += n;
  }
  return exact;
}

TEST(Sketch, NeverTellsTooLittle) {
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{1000}, size_t{1} << 16}) {
    CountingSketch sketch(bytes);
    EXPECT_EQ(sketch.bytes(), std::max<size_t>(bytes / 64, 1) * 64);
    for (const auto& [key, count] : Count(&sketch, bytes, 5000)) {
      ASSERT_GE(sketch.Estimate(HashKey(key), 0), std::min<uint64_t>(count, kMax));
    }
  }
}

TEST(Sketch, IsExactWhereItIsLarge) {
  CountingSketch sketch(size_t{16} << 20);
  int wrong = 0;
  const auto exact = Count(&sketch, 7, 20000);
  for (const auto& [key, count] : exact) wrong += sketch.Estimate(HashKey(key), 0) != count;
  EXPECT_EQ(wrong, 0) << "of " << exact.size();
  for (const auto& [key, count] : exact) {
    sketch.Subtract(HashKey(key), 0, static_cast<uint32_t>(count));
  }
  for (const auto& [key, count] : exact) ASSERT_EQ(sketch.Estimate(HashKey(key), 0), 0u);
}

// With 64 bytes a key, a key's own block is nearly its own.
TEST(Sketch, IsNearlyExactWithABlockAKey) {
  const size_t n = 20000;
  CountingSketch sketch(64 * n);
  for (size_t key = 0; key < n; ++key) sketch.Add(HashKey(static_cast<int64_t>(key)), 0, 1);
  size_t more = 0;
  for (size_t key = 0; key < n; ++key) {
    more += sketch.Estimate(HashKey(static_cast<int64_t>(key)), 0) > 1;
  }
  EXPECT_LT(more, n / 100);
}

class SketchOfBits : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Bits, SketchOfBits, ::testing::Values(4, 8, 16));

TEST_P(SketchOfBits, CountersStayAtTheirEnds) {
  CountingSketch sketch(64, GetParam());
  const uint32_t max = sketch.max_count();
  EXPECT_EQ(max, (1u << GetParam()) - 1);
  const uint64_t hash = HashKey(5);
  sketch.Add(hash, 0, max - 1);
  EXPECT_EQ(sketch.Estimate(hash, 0), max - 1);
  for (const uint32_t n : {1u, 1u, 0xffffffffu}) {
    sketch.Add(hash, 0, n);
    EXPECT_EQ(sketch.Estimate(hash, 0), max);
  }
  sketch.Subtract(hash, 0, 1);
  EXPECT_EQ(sketch.Estimate(hash, 0), max - 1);
  for (const uint32_t n : {max, 0xffffffffu}) {
    sketch.Subtract(hash, 0, n);
    EXPECT_EQ(sketch.Estimate(hash, 0), 0u);
  }
}

// Whether a block is looked at in every epoch or after many of them.
TEST_P(SketchOfBits, EachEpochHalvesAllCounts) {
  Rng rng(3);
  CountingSketch often(size_t{1} << 20, GetParam()), seldom(size_t{1} << 20, GetParam());
  const uint32_t max = often.max_count();
  std::map<int64_t, uint32_t> exact;
  uint32_t epoch = 0xfffffff0u;  // it may pass its largest number
  for (CountingSketch* sketch : {&often, &seldom}) {
    for (int64_t key = 0; key < 50; ++key) sketch->Estimate(HashKey(key), epoch);
  }
  for (int round = 0; round < 300; ++round) {
    const int64_t key = static_cast<int64_t>(rng.Below(50));
    const auto n = static_cast<uint32_t>(rng.Below(max / 8 + 2));
    exact[key] = std::min(exact[key] + n, max);
    often.Add(HashKey(key), epoch, n);
    seldom.Add(HashKey(key), epoch, n);
    if (!rng.OneIn(5)) continue;
    const auto passed = static_cast<uint32_t>(rng.OneIn(10) ? 40 : rng.Below(3));
    for (uint32_t i = 0; i < passed; ++i) {
      ++epoch;
      for (auto& [each, count] : exact) {
        count /= 2;
        ASSERT_EQ(often.Estimate(HashKey(each), epoch), count);
      }
    }
  }
  for (const auto& [key, count] : exact) ASSERT_EQ(seldom.Estimate(HashKey(key), epoch), count);
}

TEST(Sketch, ClearForgetsAll) {
  CountingSketch sketch(4096);
  const auto exact = Count(&sketch, 1, 1000);
  sketch.Clear();
  for (const auto& [key, count] : exact) ASSERT_EQ(sketch.Estimate(HashKey(key), 0), 0u);
}

}  // namespace
}  // namespace msrec
