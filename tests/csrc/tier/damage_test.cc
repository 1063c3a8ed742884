// SPDX-License-Identifier: Apache-2.0
//
// Scans of an SSD tier with many damaged records.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>

#include "testing.h"
#include "tier_testing.h"

namespace msrec {
namespace {

// Flips a bit in the rows of these slots of a segment.
void Damage(const SsdOptions& options, uint64_t id, const std::vector<uint64_t>& slots) {
  const RecordShape shape(options.row_bytes);
  const std::string path = options.path + "/" + SegmentName(id);
  std::stringstream in;
  in << std::ifstream(path, std::ios::binary).rdbuf();
  std::string bytes = in.str();
  for (const uint64_t slot : slots) bytes[shape.OffsetOf(slot) + 17] ^= 4;
  std::ofstream(path, std::ios::binary) << bytes;
}

// A walk through the index for each of them would take minutes.
TEST(SsdTierDamage, ManyDamagedOldVersionsDoNotHoldUpAScan) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  options.row_bytes = 8;
  options.segment_bytes = 4 << 20;
  options.background_gc = false;
  const int64_t rows = 500000 / static_cast<int64_t>(kFewer);
  std::vector<SsdTier::SegmentInfo> segments;
  {
    SsdTier tier(options);
    WriteMany(&tier, Range(0, rows), 1);
    WriteMany(&tier, Range(0, rows), 2);
    segments = tier.Segments();
  }
  uint64_t id = 0, damaged = 0;
  for (const SsdTier::SegmentInfo& segment : segments) {
    ++id;
    std::vector<uint64_t> slots;
    for (uint64_t slot = 0; slot < segment.slots - segment.live; ++slot) slots.push_back(slot);
    Damage(options, id, slots);
    damaged += slots.size();
  }
  ASSERT_EQ(damaged, static_cast<uint64_t>(rows));
  ::alarm(300);  // a hang ends the process
  SsdTier tier(options);
  const auto scan = tier.Scan(false);
  std::vector<int64_t> keys;
  std::vector<char> bytes;
  int64_t given = 0;
  while (scan->Next(10000, &keys, &bytes)) {
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(std::string(&bytes[8 * i], 8), RowOf(keys[i], 2, 8));
    }
    given += static_cast<int64_t>(keys.size());
  }
  EXPECT_EQ(given, rows);
  ::alarm(0);
}

// A damaged row stops a scan until it has been written again; a damaged old version never does.
TEST(SsdTierDamage, AScanStopsForEachDamagedRowAmongOldVersions) {
  for (const size_t most : {10, 300, 5000}) {
    for (const bool overwritten : {true, false}) {
      TestDirectory directory(true);
      SsdOptions options = SmallOptions(directory.path() + "/tier");
      options.segment_bytes = 1 << 20;
      options.background_gc = false;
      {
        SsdTier tier(options);
        WriteMany(&tier, Range(0, 3000), 1);
        WriteMany(&tier, Range(0, 2000), 2);
      }
      std::vector<uint64_t> slots;
      for (uint64_t slot = 0; slot < 2000; slot += 3) slots.push_back(slot);
      const std::vector<int64_t> bad = {2100, 2500, 2999};
      for (const int64_t key : bad) slots.push_back(static_cast<uint64_t>(key));
      Damage(options, 1, slots);
      SsdTier tier(options);
      std::map<int64_t, std::string> given;
      const auto scan = tier.Scan(false);
      std::vector<int64_t> keys;
      std::vector<char> rows;
      size_t stops = 0;
      for (bool more = true; more;) {
        try {
          more = scan->Next(most, &keys, &rows);
          for (size_t i = 0; i < keys.size(); ++i) {
            given[keys[i]] = std::string(&rows[40 * i], 40);
          }
        } catch (const Corruption& damage) {
          ++stops;
          const auto slot =
              static_cast<int64_t>((damage.offset() - kDataOffset) / RecordShape(40).record_bytes);
          ASSERT_EQ(std::count(bad.begin(), bad.end(), slot), 1) << slot;
          if (!overwritten) {
            if (stops == 5) break;  // again and again
            continue;
          }
          ASSERT_LE(stops, bad.size());
          WriteOne(&tier, slot, 3);
        }
      }
      if (!overwritten) {
        ASSERT_EQ(stops, 5u);
        for (const int64_t key : bad) ASSERT_EQ(given.count(key), 0u);
        continue;
      }
      ASSERT_EQ(given.size(), 3000u);
      for (const auto& [key, row] : given) {
        const bool was_bad = std::count(bad.begin(), bad.end(), key) != 0;
        ASSERT_EQ(row, RowOf(key, was_bad ? 3 : key < 2000 ? 2 : 1, 40)) << key;
      }
    }
  }
}

// Where all there is to doubt has gone with its segment, another one at its place is not doubted.
TEST(SsdTierDamage, ASegmentThatWasRemovedMeanwhileIsNotDoubted) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  options.background_gc = false;
  {
    SsdTier tier(options);
    WriteMany(&tier, Range(0, 8000), 1);
    WriteMany(&tier, Range(0, 8000), 2);
    ASSERT_EQ(tier.Segments()[0].live, 0u);
  }
  std::vector<uint64_t> slots;
  for (uint64_t slot = 0; slot < 100; ++slot) slots.push_back(slot);
  Damage(options, 1, slots);
  SsdTier tier(options);
  const auto scan = tier.Scan(false);
  std::vector<int64_t> keys;
  std::vector<char> rows;
  std::map<int64_t, std::string> given;
  for (uint64_t part = 0; scan->Next(20, &keys, &rows); ++part) {
    for (size_t i = 0; i < keys.size(); ++i) given[keys[i]] = std::string(&rows[40 * i], 40);
    if (part == 2) {
      tier.Compact();
      WriteMany(&tier, Range(0, 7000), 3);
    }
  }
  ASSERT_EQ(given.size(), 8000u);
  for (const auto& [key, row] : given) {
    ASSERT_TRUE(row == RowOf(key, 3, 40) || row == RowOf(key, 2, 40)) << key;
  }
}

}  // namespace
}  // namespace msrec
