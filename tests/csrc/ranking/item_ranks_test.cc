// SPDX-License-Identifier: Apache-2.0
#include "ranking/item_ranks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "ranking/score_tile.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

std::vector<float> Drawn(size_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw;
  std::vector<float> made(n);
  for (float& each : made) each = draw(engine);
  return made;
}

TEST(ScoreTileTest, EachSetGivesTheBitsOfOneScore) {
  for (const size_t dim : {size_t{0}, size_t{1}, size_t{7}, size_t{64}}) {
    const size_t users = 19, items = 37, blocks = 3;
    const std::vector<float> of_users = Drawn(users * dim, 1), of_items = Drawn(items * dim, 2);
    std::vector<float> packed(blocks * kBlockItems * dim);
    PackItems(of_items.data(), items, dim, packed.data());
    for (const char* name : {"base", "avx2", "avx512"}) {
      const ScoreTileLoop loop = FindScoreTile(name);
      if (loop == nullptr) continue;
      std::vector<float> scores(users * blocks * kBlockItems, -1.0f);
      loop(of_users.data(), users, packed.data(), blocks, dim, scores.data());
      for (size_t u = 0; u < users; ++u) {
        for (size_t i = 0; i < items; ++i) {
          const float expected = ScoreOf(of_users.data() + u * dim, of_items.data() + i * dim, dim);
          const float found = scores[u * blocks * kBlockItems + i];
          EXPECT_EQ(std::memcmp(&found, &expected, sizeof(float)), 0) << name << u << " " << i;
        }
      }
    }
  }
  EXPECT_EQ(FindScoreTile("none"), nullptr);
}

TEST(ItemRanksTest, ThreadsChangeNothing) {
  const size_t users = 130, items = 600, dim = 5, k = 4;
  const std::vector<float> of_users = Drawn(users * dim, 3), of_items = Drawn(items * dim, 4);
  const ScoredVectors vectors = {of_users.data(), users, of_items.data(), items, nullptr, dim};
  std::vector<int64_t> target(users), offsets(users + 1), none(users + 1, 0);
  for (size_t u = 0; u < users; ++u) {
    target[u] = static_cast<int64_t>(u * 7 % items);
    offsets[u + 1] = static_cast<int64_t>(u) + 1;
  }
  const int before = ThreadPool::Global().num_threads();
  std::vector<double> first_ranks;
  std::vector<int64_t> first_best;
  for (const int threads : {1, 3}) {
    ThreadPool::Global().SetNumThreads(threads);
    std::vector<double> ranks(users);
    std::vector<int64_t> best(users * k);
    std::vector<float> scores(users * k);
    RankTargets(vectors, {target.data(), offsets.data()}, {nullptr, none.data()}, ranks.data());
    TopItems(vectors, {nullptr, none.data()}, k, best.data(), scores.data());
    for (size_t u = 0; u < users; ++u) {
      if (ranks[u] == 1.0) EXPECT_EQ(best[u * k], target[u]);
    }
    if (threads == 1) {
      first_ranks = ranks;
      first_best = best;
    }
    EXPECT_EQ(ranks, first_ranks);
    EXPECT_EQ(best, first_best);
  }
  ThreadPool::Global().SetNumThreads(before);
}

TEST(ItemRanksTest, TargetsAndMaskedItemsDoNotCount) {
  const std::vector<float> user = {1.0f}, item = {5.0f, 4.0f, 4.0f, 4.0f, 1.0f}, bias(5, 0.5f);
  const ScoredVectors vectors = {user.data(), 1, item.data(), 5, bias.data(), 1};
  const std::vector<int64_t> target = {1, 4}, masked = {0, 2, 2, 1}, ends = {0, 2}, all = {0, 4};
  std::vector<double> ranks(2);
  RankTargets(vectors, {target.data(), ends.data()}, {masked.data(), all.data()}, ranks.data());
  EXPECT_EQ(ranks, (std::vector<double>{1.5, 2.0}));  // beside item 3 alone, and below it
  std::vector<int64_t> best(3);
  std::vector<float> scores(3);
  TopItems(vectors, {masked.data(), all.data()}, 3, best.data(), scores.data());
  EXPECT_EQ(best, (std::vector<int64_t>{3, 4, -1}));
  EXPECT_EQ(scores[1], 1.5f);
}

}  // namespace
}  // namespace msrec
