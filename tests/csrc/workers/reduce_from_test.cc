// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "on_workers.h"
#include "workers/reduce.h"
#include "workers/thread_group.h"

namespace msrec {
namespace {

TEST(WeightedSumFrom, LeavesWhatItReadsAndWritesTheSums) {
  for (const std::vector<size_t>& sizes : std::vector<std::vector<size_t>>{{40}, {3, 0, 70}}) {
    const size_t n = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
    std::vector<std::vector<float>> data(2, std::vector<float>(n)), sums = data;
    for (size_t i = 0; i < n; ++i) {
      data[0][i] = static_cast<float>(i);
      data[1][i] = 2.0f;
    }
    const std::vector<std::vector<float>> before = data;
    const std::vector<float> weights = {0.25f, 0.75f};
    const Channels channels = MakeThreadChannel(2, "step");
    const auto errors = OnWorkers(channels, [&](Communicator& c) {
      std::vector<const float*> from;
      std::vector<SummedSpan> to;
      size_t at = 0;
      for (const size_t size : sizes) {
        from.push_back(data[c.rank()].data() + at);
        to.push_back({sums[c.rank()].data() + at, size});
        at += size;
      }
      WeightedSum(c, from, to, weights.data());
    });
    EXPECT_EQ(errors, std::vector<std::string>(2, ""));
    EXPECT_EQ(data, before);
    EXPECT_EQ(sums[0], sums[1]);
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(sums[0][i], 0.25f * static_cast<float>(i) + 1.5f);
  }
}

}  // namespace
}  // namespace msrec
