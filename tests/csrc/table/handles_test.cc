// SPDX-License-Identifier: Apache-2.0
//
// Handles: only those that the table gave out for the rows it has now are good.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "table/table.h"
#include "table_testing.h"
#include "testing.h"
#include "workers/registry.h"

namespace msrec {
namespace {

constexpr int kDim = 4;
using Pair = std::array<int64_t, 2>;

std::shared_ptr<Registered> Made(const std::string& name) {
  TableConfig config;
  config.name = name;
  config.dim = kDim;
  config.initializer.a = 1.0f;
  config.admission.threshold = 2;
  const auto made = CreateTable(config);
  made->table->BindOptimizer(RuleOf(RuleKind::kSgd));
  return made;
}

std::vector<Pair> Handles(Table* table, const std::vector<int64_t>& ids) {
  std::vector<Pair> handles(ids.size());
  std::vector<float> out(ids.size() * kDim);
  table->LookupWithHandles(View(ids), {}, out.data(), handles.data()->data());
  return handles;
}

void Accumulate(Table* table, const std::vector<Pair>& handles) {
  const std::vector<float> grad(handles.size() * kDim, 1.0f);
  table->AccumulateByHandle(handles.data()->data(), handles.size(), grad.data());
}

std::vector<float> Values(Table* table, const std::vector<int64_t>& ids) {
  std::vector<float> out(ids.size() * kDim);
  table->LookupEval(View(ids), {}, out.data());
  return out;
}

class HandlesTest : public testing::Test {
 protected:
  HandlesTest() : made_(Made("handles")), table_(made_->table.get()) {
    // Rows whose handles nobody has, between those that are given out.
    std::vector<int64_t> others;
    for (int64_t key = 0; key < 300; ++key) {
      ids_.push_back(key * key - 40);
      others.push_back(1000000 + key);
    }
    table_->Put(View(others), std::vector<float>(others.size() * kDim).data(), others.size());
    handles_ = Handles(table_, ids_);  // counted once
    handles_ = Handles(table_, ids_);  // and let in
    ids_.push_back(-1000);             // one without a row
    handles_ = Handles(table_, ids_);
    given_.insert(handles_.begin(), handles_.end());
  }
  ~HandlesTest() override { CloseTable(made_->id); }

  // The handle is refused among good ones, and these have added nothing either.
  void Refused(const Pair& handle, const std::string& what) {
    std::vector<Pair> some(handles_.begin(), handles_.begin() + 5);
    some.push_back(handle);
    EXPECT_THROW(Accumulate(table_, some), StaleHandle) << what;
    EXPECT_EQ(table_->GradientSquaredNorm(), 0.0) << what;
  }

  const std::shared_ptr<Registered> made_;
  Table* const table_;
  std::vector<int64_t> ids_;
  std::vector<Pair> handles_;
  std::set<Pair> given_;
};

TEST_F(HandlesTest, AreGoodAsTheyWereGiven) {
  const auto before = Values(table_, ids_);
  Accumulate(table_, handles_);
  table_->Step({1.0f, 0, 1, 1, 0});
  auto expected = before;
  for (size_t i = 0; i < expected.size() - kDim; ++i) expected[i] -= 1.0f;
  EXPECT_TRUE(SameBits(Values(table_, ids_), expected));
  EXPECT_EQ(handles_.back()[0], -1) << "a key that was not let in";
}

TEST_F(HandlesTest, OfAnotherLiveRowAreNotMadeByCountingOn) {
  // What an attacker, or an error in arithmetic, would try: the next place, the next shard.
  for (const Pair& handle : handles_) {
    for (const int64_t step : {int64_t{1}, int64_t{-1}, int64_t{1} << 32, -(int64_t{1} << 32)}) {
      const Pair other{handle[0] + step, handle[1]};
      if (given_.count(other) == 0) Refused(other, "a place further on");
      const Pair tagged{handle[0], handle[1] + step};
      if (given_.count(tagged) == 0) Refused(tagged, "another tag");
    }
  }
}

TEST_F(HandlesTest, AreNotMadeOfHalvesOfTwo) {
  Rng rng(3);
  for (size_t i = 0; i < 4000 / kFewer; ++i) {
    const Pair& a = handles_[rng.Below(handles_.size())];
    const Pair& b = handles_[rng.Below(handles_.size())];
    const Pair mixed{a[0], b[1]};
    if (given_.count(mixed) == 0) Refused(mixed, "halves of two");
  }
  Refused({-1, handles_[0][1]}, "a row's tag for a key without one");
  Refused({handles_[0][0], handles_.back()[1]}, "the tag of a key without a row");
}

TEST_F(HandlesTest, AnyBitOfAHandleCounts) {
  Rng rng(4);
  for (size_t i = 0; i < 20000 / kFewer; ++i) {
    Pair handle = handles_[rng.Below(handles_.size())];
    if (rng.OneIn(4)) {
      handle[rng.Below(2)] = static_cast<int64_t>(rng.Bits());
    } else {
      for (uint64_t flips = 1 + rng.Below(3); flips > 0; --flips) {
        handle[rng.Below(2)] ^= int64_t{1} << rng.Below(63);
      }
    }
    if (given_.count(handle) == 0) Refused(handle, "bits flipped");
  }
  for (int bit = 0; bit < 128; ++bit) {
    for (const Pair& good : {handles_[7], handles_.back()}) {
      uint64_t words[2];
      std::memcpy(words, good.data(), sizeof(words));
      words[bit / 64] ^= uint64_t{1} << bit % 64;
      Pair handle;
      std::memcpy(handle.data(), words, sizeof(words));
      Refused(handle, "bit " + std::to_string(bit));
    }
  }
}

TEST_F(HandlesTest, OfAnotherTableOrTimeAreRefused) {
  const auto other = Made("handles other");
  // The same keys in the same places.
  std::vector<int64_t> ids(ids_.begin(), ids_.end() - 1);
  Handles(other->table.get(), ids);
  for (const Pair& handle : Handles(other->table.get(), ids)) Refused(handle, "of another table");
  CloseTable(other->id);

  const auto before = handles_;
  std::vector<int64_t> gone{ids_[299]};
  EXPECT_EQ(table_->Erase(View(gone)), 1u);
  handles_ = Handles(table_, std::vector<int64_t>(ids_.begin(), ids_.begin() + 250));
  for (const Pair& handle : before) Refused(handle, "of an earlier version");

  // A table of that name made anew has the same places, too.
  const auto last = handles_;
  CloseTable(made_->id);
  const auto again = Made("handles");
  std::vector<int64_t> same(ids_.begin(), ids_.begin() + 250);
  Handles(again->table.get(), same);
  Handles(again->table.get(), same);
  for (const Pair& handle : last) {
    EXPECT_THROW(Accumulate(again->table.get(), {handle}), StaleHandle);
  }
  CloseTable(again->id);
}

TEST_F(HandlesTest, TellNothingOfTheTagsOfOthers) {
  std::set<uint64_t> tags;
  for (const Pair& handle : handles_) {
    tags.insert(static_cast<uint64_t>(handle[1]) & ((uint64_t{1} << 40) - 1));
  }
  EXPECT_EQ(tags.size(), handles_.size()) << "each row has a tag of its own";
}

TEST(HandlesOfWorkers, OfAWorkerThatIsNotThereAreRefusedWhereverTheyStand) {
  TableConfig config;
  config.name = "of three workers";
  config.dim = kDim;
  config.placement.kind = PlacementKind::kReplicated;
  config.placement.workers = 3;
  config.placement.rank = 1;
  const auto made = CreateTable(config);
  made->table->BindOptimizer(RuleOf(RuleKind::kSgd));
  const std::vector<Pair> good = Handles(made->table.get(), {3, 4, 5});
  made->table->CheckHandles(good.data()->data(), good.size());
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<Pair> handles = good;
    handles[i][0] |= int64_t{0x7ff} << 48;  // worker 2047
    try {
      made->table->CheckHandles(handles.data()->data(), handles.size());
      ADD_FAILURE() << "handles[" << i << "] was taken";
    } catch (const StaleHandle& error) {
      const std::string where = "handles[" + std::to_string(i) + "] was made up";
      EXPECT_NE(std::string(error.what()).find(where), std::string::npos) << error.what();
    }
  }
  CloseTable(made->id);
}

}  // namespace
}  // namespace msrec
