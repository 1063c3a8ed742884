// SPDX-License-Identifier: Apache-2.0
#include "util/key_set.h"

#include <gtest/gtest.h>

#include <unordered_map>

#include "testing.h"

namespace msrec {
namespace {

TEST(KeySet, NumbersKeysInOrderOfFirstAppearance) {
  KeySet set;
  Rng rng(1);
  int rounds = 0;
  // One set for many rounds of changing size, as the table uses it.
  for (const size_t most : {0, 1, 3, 100, 5000, 20, 32, 33, 100000}) {
    set.Reset(rounds++ % 2 == 0 ? most : most / 16);  // sized right, or left to grow
    std::vector<int64_t> keys(most);
    std::unordered_map<int64_t, uint32_t> model;
    std::vector<int64_t> order;
    for (size_t i = 0; i < 3 * most && model.size() < most; ++i) {
      const int64_t key = rng.Key(most + most / 2 + 1);
      const auto [it, added] = model.emplace(key, static_cast<uint32_t>(model.size()));
      if (added) order.push_back(key);
      ASSERT_EQ(set.FindOrAdd(key, keys.data()), it->second);
      ASSERT_EQ(set.size(), model.size());
    }
    keys.resize(order.size());
    EXPECT_EQ(keys, order);
  }
}

}  // namespace
}  // namespace msrec
