// SPDX-License-Identifier: Apache-2.0
#include "table/device/slot_map.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "testing.h"
#include "util/hash.h"

namespace msrec {
namespace {

// What a SlotMap promises, by looking at every key for each victim.
class Model {
 public:
  Model(uint32_t slots, bool lfu) : slots_(slots), lfu_(lfu) {}

  struct Held {
    uint32_t slot;
    uint32_t frequency;
    uint32_t stamp;
  };

  bool full() const { return held_.size() + freed_pinned_ == slots_; }
  // The key that would have to go, if any may.
  const int64_t* Victim() const {
    const int64_t* victim = nullptr;
    std::tuple<uint32_t, uint32_t, uint32_t> lowest;
    for (const auto& [key, held] : held_) {
      if (held.stamp == clock_) continue;
      const auto standing = std::make_tuple(lfu_ ? held.frequency : 0, held.stamp, held.slot);
      if (victim != nullptr && lowest <= standing) continue;
      victim = &key;
      lowest = standing;
    }
    return victim;
  }
  size_t pinned() const {
    size_t pinned = freed_pinned_;
    for (const auto& [key, held] : held_) pinned += held.stamp == clock_;
    return pinned;
  }
  void NextStep() {
    ++clock_;
    freed_pinned_ = 0;
  }
  void Free(int64_t key) {
    freed_pinned_ += held_.at(key).stamp == clock_;
    held_.erase(key);
  }

  const uint32_t slots_;
  const bool lfu_;
  std::map<int64_t, Held> held_;
  uint32_t clock_ = 1;
  size_t freed_pinned_ = 0;
};

void Live(uint32_t slots, bool lfu, uint64_t distinct, uint64_t seed, int operations) {
  Rng rng(seed);
  SlotMap map(slots, lfu);
  Model model(slots, lfu);
  std::map<int64_t, uint32_t> frequency;
  for (int i = 0; i < operations; ++i) {
    const int64_t key = rng.Key(rng.OneIn(3) ? distinct : distinct / 3 + 1);
    const uint32_t slot = map.Find(key);
    const auto known = model.held_.find(key);
    ASSERT_EQ(slot, known == model.held_.end() ? SlotMap::kNone : known->second.slot);
    if (rng.OneIn(40) && slot != SlotMap::kNone) {
      map.Free(slot);
      model.Free(key);
    } else if (slot != SlotMap::kNone) {
      const uint32_t times = ++frequency[key];
      ASSERT_EQ(map.Use(slot, times), known->second.stamp != model.clock_);
      known->second.frequency = times;
      known->second.stamp = model.clock_;
    } else {
      const bool full = model.full();
      const int64_t* victim = full ? model.Victim() : nullptr;
      const uint32_t times = ++frequency[key];
      const uint32_t taken = map.Take(key, times);
      if (full && victim == nullptr) {
        ASSERT_EQ(taken, SlotMap::kNone);
      } else {
        ASSERT_LT(taken, slots);
        if (full) {
          ASSERT_EQ(taken, model.held_.at(*victim).slot);
          model.held_.erase(int64_t{*victim});
        }
        model.held_[key] = {taken, times, model.clock_};
      }
    }
    ASSERT_EQ(map.size(), model.held_.size());
    ASSERT_EQ(map.pinned(), model.pinned());
    if (rng.OneIn(slots / 2 + 1)) {
      map.NextStep();
      model.NextStep();
    }
    if (rng.OneIn(3000)) {
      map.Clear();
      model.held_.clear();
      model.freed_pinned_ = 0;
    }
  }
  std::set<uint32_t> used;
  for (const auto& [key, held] : model.held_) {
    EXPECT_EQ(map.Find(key), held.slot);
    EXPECT_EQ(map.key(held.slot), key);
    EXPECT_TRUE(used.insert(held.slot).second) << "two keys in one slot";
  }
}

TEST(SlotMap, IsTheModel) {
  for (const bool lfu : {false, true}) {
    for (const uint32_t slots : {1u, 2u, 7u, 64u, 300u}) {
      for (uint64_t seed = 0; seed < 3; ++seed) {
        Live(slots, lfu, 3 * slots + 3, seed, static_cast<int>(12000 / kFewer));
        if (HasFatalFailure()) FAIL() << "slots " << slots << ", lfu " << lfu << ", seed " << seed;
      }
    }
  }
}

// More slots than one pass offers.
TEST(SlotMap, IsTheModelAcrossPasses) {
  for (const bool lfu : {false, true}) {
    Live(1500, lfu, 6000, 7, static_cast<int>(20000 / kFewer));
    if (HasFatalFailure()) FAIL() << "lfu " << lfu;
  }
}

// A key's place is found near its home: of all places of a large map, it would take minutes.
TEST(SlotMap, OfManySlotsFreesThemAll) {
  constexpr uint32_t kSlots = (1 << 19) / static_cast<uint32_t>(kFewer);
  const auto key = [](uint32_t i) { return static_cast<int64_t>(Mix64(i)); };
  SlotMap map(kSlots, false);
  for (uint32_t i = 0; i < kSlots; ++i) ASSERT_NE(map.Take(key(i), 1), SlotMap::kNone);
  map.NextStep();
  // The last first: those that others have kept from their homes.
  for (uint32_t i = kSlots; i > 0; --i) {
    const uint32_t slot = map.Find(key(i - 1));
    ASSERT_NE(slot, SlotMap::kNone);
    map.Free(slot);
  }
  for (uint32_t i = 0; i < kSlots; ++i) ASSERT_EQ(map.Find(key(i)), SlotMap::kNone);
}

TEST(SlotMap, FullOfPinnedKeysItRefusesAndStaysAsItWas) {
  SlotMap map(3, false);
  for (int64_t key = 0; key < 3; ++key) EXPECT_NE(map.Take(key, 1), SlotMap::kNone);
  EXPECT_EQ(map.Take(9, 1), SlotMap::kNone);
  for (int64_t key = 0; key < 3; ++key) EXPECT_NE(map.Find(key), SlotMap::kNone);
  map.NextStep();
  EXPECT_NE(map.Take(9, 1), SlotMap::kNone);
}

}  // namespace
}  // namespace msrec
