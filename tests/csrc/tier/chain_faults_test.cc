// SPDX-License-Identifier: Apache-2.0
//
// A chain of tiers in the middle of a move: while rows go up, and after a move that has failed.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "map_tier.h"
#include "tier/tier_chain.h"

namespace msrec {
namespace {

constexpr size_t kRowBytes = 8;

struct Levels {
  std::shared_ptr<MapTier> upper = std::make_shared<MapTier>(kRowBytes);
  std::shared_ptr<MapTier> lower = std::make_shared<MapTier>(kRowBytes);
  TierChain chain;

  explicit Levels(int64_t upper_rows)
      : chain({{"remote", upper, upper_rows}, {"ssd", lower, -1}}) {}
};

std::vector<char> RowsOf(size_t n, char fill) { return std::vector<char>(n * kRowBytes, fill); }

// Between a reader's two looks, a key that was below is written to the upper level, which was asked
// already, and erased from the lower one, which was not.
TEST(TierChainFaults, ReadFindsAKeyThatMovesUpMeanwhile) {
  for (const bool contains : {false, true}) {
    Levels levels(100);
    const std::vector<int64_t> keys = {1, 2, 3};
    const std::vector<char> old = RowsOf(3, 'o'), fresh = RowsOf(1, 'n');
    levels.lower->Write(keys.data(), 3, old.data());
    std::atomic<int> reads{0};
    const auto move = [&](const char* call) {
      if (std::string(call) != (contains ? "contains" : "read") || ++reads != 1) return false;
      levels.chain.Write(&keys[1], 1, fresh.data());
      return false;
    };
    levels.lower->FailWith(move);
    bool found[3] = {};
    std::vector<char> rows(3 * kRowBytes);
    if (contains) {
      levels.chain.Contains(keys.data(), 3, found);
    } else {
      levels.chain.Read(keys.data(), 3, rows.data(), found);
      EXPECT_TRUE(rows[kRowBytes] == 'o' || rows[kRowBytes] == 'n');
    }
    EXPECT_GE(reads, 1);
    EXPECT_TRUE(found[0] && found[1] && found[2]) << contains;
  }
}

// A spill that fails half way leaves rows in both levels: a walk gives them once, in that state and
// after the write was repeated.
TEST(TierChainFaults, AWalkGivesARowOnceAfterASpillThatFailed) {
  for (const char* failing : {"write", "erase"}) {
    for (int nth = 1; nth <= 3; ++nth) {
      SCOPED_TRACE(std::string(failing) + " " + std::to_string(nth));
      Levels levels(20);
      std::vector<int64_t> keys;
      for (int64_t key = 0; key < 30; ++key) keys.push_back(key);
      std::atomic<int> calls{0};
      const bool write = std::string(failing) == "write";
      (write ? levels.lower : levels.upper)->FailWith([&](const char* call) {
        return std::string(call) == failing && ++calls == nth;
      });
      const auto expect_once = [&](size_t n) {
        std::vector<int64_t> seen, some;
        std::vector<char> rows;
        const auto scan = levels.chain.Scan(true);
        while (scan->Next(7, &some, &rows)) {
          ASSERT_EQ(rows.size(), some.size() * kRowBytes);
          seen.insert(seen.end(), some.begin(), some.end());
        }
        std::sort(seen.begin(), seen.end());
        EXPECT_EQ(std::unique(seen.begin(), seen.end()) - seen.begin(),
                  static_cast<ptrdiff_t>(seen.size()));
        if (n > 0) EXPECT_EQ(seen.size(), n);
      };
      int failures = 0;
      for (int64_t first : {0, 30, 60}) {
        for (int64_t& key : keys) key = first + (&key - keys.data());
        const std::vector<char> rows = RowsOf(30, 'r');
        for (bool done = false; !done;) {
          try {
            levels.chain.Write(keys.data(), 30, rows.data());
            done = true;
          } catch (const std::runtime_error&) {
            ++failures;
            expect_once(0);
          }
        }
        expect_once(static_cast<size_t>(first) + 30);
        EXPECT_EQ(levels.chain.size(), static_cast<size_t>(first) + 30);
      }
      EXPECT_EQ(failures, 1);
    }
  }
}

}  // namespace
}  // namespace msrec
