// SPDX-License-Identifier: Apache-2.0
#include "rows/slab_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <unordered_map>

#include "alloc_faults.h"
#include "testing.h"

namespace msrec {
namespace {

// From a row that only counts to the widest: dim 8192 with three state vectors.
class SlabStoreTest : public ::testing::TestWithParam<size_t> {};

INSTANTIATE_TEST_SUITE_P(Strides, SlabStoreTest,
                         ::testing::Values(20, 24, 36, 84, 212, 1044, 32788, 65540, 98324, 131092));

// Enough rows to cross several full-size slabs, within 64 MiB.
size_t RowsFor(size_t stride) { return std::min<size_t>((size_t{64} << 20) / stride, 400000); }

TEST_P(SlabStoreTest, RowsAreDisjointZeroedAndAligned) {
  const size_t stride = GetParam();
  SlabStore store(stride);
  std::set<uintptr_t> starts;
  for (size_t i = 0; i < RowsFor(stride); ++i) {
    const uint32_t id = store.Allocate();
    ASSERT_EQ(id, i);
    char* row = store.Row(id);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(row) % 4, 0u);
    ASSERT_EQ(row[0], 0);
    ASSERT_EQ(row[stride - 1], 0);
    std::memset(row, 0xff, stride);  // ASan and the check below see a row that reaches outside
    starts.insert(reinterpret_cast<uintptr_t>(row));
  }
  ASSERT_EQ(starts.size(), RowsFor(stride));
  uintptr_t before = 0;
  for (const uintptr_t start : starts) {
    ASSERT_TRUE(before == 0 || start - before >= stride);
    before = start;
  }
  EXPECT_GE(store.bytes(), RowsFor(stride) * stride);
}

TEST_P(SlabStoreTest, RowsNeverMoveAndKeepTheirContents) {
  const size_t stride = GetParam();
  SlabStore store(stride);
  std::unordered_map<uint32_t, std::pair<char*, uint64_t>> live;
  std::vector<uint32_t> ids;
  Rng rng(stride);
  const size_t ops = RowsFor(stride) / kFewer;
  for (size_t op = 0; op < ops; ++op) {
    if (!ids.empty() && rng.OneIn(3)) {
      const size_t at = rng.Below(ids.size());
      const uint32_t id = ids[at];
      const auto [row, stamp] = live.at(id);
      ASSERT_EQ(store.Row(id), row);
      uint64_t held;
      std::memcpy(&held, row, sizeof(held));
      ASSERT_EQ(held, stamp);
      store.Free(id);
      live.erase(id);
      ids[at] = ids.back();
      ids.pop_back();
    } else {
      const uint32_t end = store.end();
      const bool has_free = store.live() < end;
      const uint32_t id = store.Allocate();
      ASSERT_EQ(live.count(id), 0u);
      ASSERT_EQ(store.end(), has_free ? end : end + 1) << "a freed id is used before a new one";
      char* row = store.Row(id);
      for (const size_t at : {size_t{0}, stride / 2, stride - 1}) ASSERT_EQ(row[at], 0);
      const uint64_t stamp = rng.Bits();
      std::memcpy(row, &stamp, sizeof(stamp));
      row[stride - 1] = 1;
      live[id] = {row, stamp};
      ids.push_back(id);
    }
    ASSERT_EQ(store.live(), live.size());
  }
}

TEST_P(SlabStoreTest, ReserveIsEnoughForItsAllocations) {
  const size_t stride = GetParam();
  SlabStore store(stride);
  for (int i = 0; i < 10; ++i) store.Allocate();
  store.Free(3);
  store.Free(7);
  const size_t n = RowsFor(stride) / 2;
  store.Reserve(n);
  const size_t bytes = store.bytes();
  for (size_t i = 0; i < n; ++i) store.Allocate();
  EXPECT_EQ(store.bytes(), bytes);
}

TEST_P(SlabStoreTest, HoldsLittleWhenItHasLittle) {
  SlabStore store(GetParam());
  EXPECT_EQ(store.bytes(), 0u);
  store.Allocate();
  EXPECT_LE(store.bytes(), 32 * GetParam() + 4096);
}

TEST(SlabStore, TakesNoMoreMemoryThanItSays) {
  constexpr size_t kStride = 1044, kRows = 500, kOthers = 16384;  // of lists of slabs and free rows
  SlabStore counted(kStride);
  counted.Reserve(kRows);
  SlabStore store(kStride);
  const AllocationFaults faults = AllocationFaults::Bytes(counted.bytes() + kOthers);
  EXPECT_NO_THROW(store.Reserve(kRows));
}

TEST(SlabStore, MoreRowsThanIdsIsBadAlloc) {
  SlabStore store(20);
  store.Allocate();
  EXPECT_THROW(store.Reserve(std::numeric_limits<uint32_t>::max()), std::bad_alloc);
  EXPECT_EQ(store.live(), 1u);
}

TEST(SlabStore, SwapExchangesRowsOfDifferentWidths) {
  SlabStore a(24), b(98324);
  for (int i = 0; i < 100; ++i) a.Row(a.Allocate())[23] = static_cast<char>(i);
  for (int i = 0; i < 70; ++i) b.Row(b.Allocate())[98323] = static_cast<char>(-i);
  a.Free(5);
  a.Swap(&b);
  ASSERT_EQ(a.stride(), 98324u);
  ASSERT_EQ(a.live(), 70u);
  ASSERT_EQ(b.live(), 99u);
  for (int i = 0; i < 70; ++i) ASSERT_EQ(a.Row(i)[98323], static_cast<char>(-i));
  for (int i = 6; i < 100; ++i) ASSERT_EQ(b.Row(i)[23], static_cast<char>(i));
  EXPECT_EQ(b.Allocate(), 5u);
}

}  // namespace
}  // namespace msrec
