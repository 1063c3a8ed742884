// SPDX-License-Identifier: Apache-2.0
#include "workers/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>

#include "on_workers.h"
#include "testing.h"
#include "util/thread_pool.h"
#include "workers/thread_group.h"

namespace msrec {
namespace {

using Floats = std::vector<float>;

Floats RandomFloats(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// Rounds to 8 bits of mantissa, to even in the middle: a bfloat16 by arithmetic.
float Rounded(float value) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const double unit = std::ldexp(1.0, exponent - 8);
  return static_cast<float>(std::nearbyint(value / unit) * unit);
}

// The sum as its definition says, in the order of ranks.
Floats Model(const std::vector<Floats>& data, const Floats& weights, WireType wire) {
  Floats sums;
  for (size_t i = 0; i < data[0].size(); ++i) {
    float sum = 0;
    for (size_t r = 0; r < data.size(); ++r) {
      if (weights[r] == 0) continue;
      const float value = wire == WireType::kBFloat16 ? Rounded(data[r][i]) : data[r][i];
      sum += weights[r] * value;
    }
    sums.push_back(wire == WireType::kBFloat16 ? Rounded(sum) : sum);
  }
  return sums;
}

bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

class WeightedSums : public ::testing::TestWithParam<WireType> {};

TEST_P(WeightedSums, HaveTheBitsOfTheDefinitionOnAllWorkers) {
  for (const int size : {1, 2, 3, 5}) {
    for (const size_t n : {0, 1, 15, 16, 17, 33, 100, 5000, 100000}) {
      std::vector<Floats> data;
      Floats weights;
      for (int r = 0; r < size; ++r) {
        data.push_back(RandomFloats(n, static_cast<uint32_t>(100 * size + r)));
        weights.push_back(static_cast<float>(r + 1) / static_cast<float>(size * (size + 1) / 2));
      }
      if (size == 3) weights[1] = 0;
      const Floats expected = Model(data, weights, GetParam());
      const Channels channels = MakeThreadChannel(size, "step");
      const auto errors = OnWorkers(channels, [&](Communicator& c) {
        WeightedSum(c, data[c.rank()].data(), n, weights.data(), GetParam());
      });
      for (int r = 0; r < size; ++r) {
        EXPECT_EQ(errors[r], "");
        EXPECT_TRUE(SameBits(data[r], expected)) << "worker " << r << " of " << size << ", " << n;
      }
    }
  }
}

TEST_P(WeightedSums, OfSeveralArraysAreThoseOfOne) {
  const std::vector<size_t> sizes = {3, 0, 70, 1, 1000};
  const Floats weights = {0.25f, 0.75f};
  std::vector<Floats> whole = {RandomFloats(1074, 1), RandomFloats(1074, 2)};
  std::vector<Floats> parts = whole;
  const Channels channels = MakeThreadChannel(2, "step");
  const auto errors = OnWorkers(channels, [&](Communicator& c) {
    WeightedSum(c, whole[c.rank()].data(), 1074, weights.data(), GetParam());
    std::vector<SummedSpan> spans;
    float* at = parts[c.rank()].data();
    for (const size_t n : sizes) {
      spans.push_back({at, n});
      at += n;
    }
    WeightedSum(c, spans, weights.data(), GetParam());
  });
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(errors[r], "");
    EXPECT_TRUE(SameBits(whole[r], parts[r]));
  }
}

INSTANTIATE_TEST_SUITE_P(OfWires, WeightedSums,
                         ::testing::Values(WireType::kFloat32, WireType::kBFloat16));

TEST(WorkerSums, AWorkerOfWeightZeroAddsNothingWhateverItHas) {
  const Floats weights = {0.0f, 1.0f};
  std::vector<Floats> data = {Floats(40, std::numeric_limits<float>::quiet_NaN()), Floats(40, 2)};
  const Channels channels = MakeThreadChannel(2, "step");
  OnWorkers(channels,
            [&](Communicator& c) { WeightedSum(c, data[c.rank()].data(), 40, weights.data()); });
  EXPECT_EQ(data[0], Floats(40, 2));
  EXPECT_EQ(data[1], Floats(40, 2));
}

TEST(WorkerSums, BFloat16KeepsWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Floats weights = {1.0f};
  // The last one's bits would round up to infinity.
  float nan = 0;
  const uint32_t bits = 0x7fffffffu;
  std::memcpy(&nan, &bits, sizeof(nan));
  Floats data = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), nan};
  const Channels channels = MakeThreadChannel(1, "step");
  WeightedSum(*channels[0], data.data(), data.size(), weights.data(), WireType::kBFloat16);
  EXPECT_EQ(data[0], infinity);
  EXPECT_EQ(data[1], -infinity);
  EXPECT_TRUE(std::isnan(data[2]));
  EXPECT_TRUE(std::isnan(data[3]));
}

TEST(WorkerSums, BytesAreThoseOfOneReduction) {
  const Floats weights(4, 0.25f);
  std::vector<Floats> data(4, Floats(6400, 1));
  const Channels channels = MakeThreadChannel(4, "step");
  OnWorkers(channels,
            [&](Communicator& c) { WeightedSum(c, data[c.rank()].data(), 6400, weights.data()); });
  // Two exchanges, in which three of four parts of a worker leave it.
  EXPECT_EQ(channels[1]->statistics().bytes_sent, 2 * 6400 * sizeof(float) * 3 / 4);
  EXPECT_EQ(channels[1]->statistics().calls, 2u);
}

TEST(WorkerDifferences, NameTheFirstSpanAndTheWorkers) {
  const Channels channels = MakeThreadChannel(3, "control");
  std::vector<std::vector<Floats>> data(3, {Floats(5, 1), Floats(0), Floats(70, 2)});
  const auto find = [&] {
    std::vector<std::optional<WorkerDifference>> found(3);
    OnWorkers(channels, [&](Communicator& c) {
      std::vector<ByteSpan> spans;
      for (const Floats& each : data[c.rank()]) {
        spans.push_back({each.data(), each.size() * sizeof(float)});
      }
      found[c.rank()] = FindDifference(c, spans);
    });
    for (int r = 1; r < 3; ++r) {
      EXPECT_EQ(found[r].has_value(), found[0].has_value());
      if (found[0].has_value()) {
        EXPECT_EQ(found[r]->place, found[0]->place);
        EXPECT_EQ(found[r]->workers, found[0]->workers);
      }
    }
    return found[0];
  };
  EXPECT_FALSE(find().has_value());
  data[2][2][69] = std::nextafter(2.0f, 3.0f);
  ASSERT_TRUE(find().has_value());
  EXPECT_EQ(find()->place, 2u);
  EXPECT_EQ(find()->workers, std::vector<int>{2});
  data[0][0][0] = -1;
  EXPECT_EQ(find()->place, 0u);
  EXPECT_EQ(find()->workers, (std::vector<int>{1, 2}));
  data[1].pop_back();
  EXPECT_EQ(find()->place, 0u);
}

}  // namespace
}  // namespace msrec
