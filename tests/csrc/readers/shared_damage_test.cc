// SPDX-License-Identifier: Apache-2.0
//
// Shared memory whose contents were damaged, or made up: each number of it in turn is set to what
// it should not be. Whoever opens it gets an exception, or rows; never what lies outside, and never
// a loop without an end.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "readers/shared_memory.h"
#include "readers/shared_reader.h"
#include "readers/shared_writer.h"
#include "rows/row_layout.h"
#include "testing.h"

namespace msrec {
namespace {

constexpr uint64_t kMost = 4 << 20;
constexpr int64_t kKeys = 40;

IdView View(const std::vector<int64_t>& ids) { return {ids.data(), ids.size(), true}; }

// A file with two tables: one of float32, whose last change is an overlay, one of int4.
class DamageTest : public ::testing::Test {
 protected:
  DamageTest() : fd_(memfd_create("shared_damage_test", MFD_CLOEXEC)) {
    SharedMemory::Create(fd_, {{3, 32, 0, 5, -1, 0, 0, 0, 0}, {5, 4, kKeys, -1, -1, 0, 0, 1, 0}},
                         kMost);
    const auto memory = std::make_shared<SharedMemory>(fd_, SharedMemory::Access::kWrite);
    SharedWriter writer(memory);
    Write(&writer, 0, kKeys);
    writer.Publish("one", "fine");
    Write(&writer, kKeys / 2, kKeys);
    writer.Publish("two", "fine");
    root_ = memory->control().roots[memory->control().sequence % kSharedRoots];
    overlay_ = memory->At<SharedRoot>(root_)->table()[0].overlay;
    end_ = memory->spec(1).rows_offset + kMost;
    // A writer changes only the beginning of each part.
    for (const uint64_t at : {uint64_t{0}, memory->arena_offset(), memory->spec(0).rows_offset,
                              memory->spec(1).rows_offset}) {
      kept_.push_back({at, std::string(memory->At<char>(at), kKept)});
    }
  }
  ~DamageTest() override { close(fd_); }

  static void Write(SharedWriter* writer, int64_t first, int64_t last) {
    const std::vector<int64_t> keys = Range(first, last);
    const std::vector<uint32_t> steps(keys.size(), 1);
    for (const size_t table : {0, 1}) {
      const std::vector<float> values(keys.size() * kMaxDim, 1.0f);  // a damaged dim may be larger
      writer->Upsert(table, View(keys), values.data(), steps.data(), steps.data());
    }
  }

  uint64_t Number(uint64_t at) const {
    uint64_t number = 0;
    EXPECT_EQ(pread(fd_, &number, sizeof(number), static_cast<off_t>(at)), 8);
    return number;
  }
  void SetNumber(uint64_t at, uint64_t number) const {
    EXPECT_EQ(pwrite(fd_, &number, sizeof(number), static_cast<off_t>(at)), 8);
  }
  void Restore() const {
    for (const auto& [at, bytes] : kept_) {
      EXPECT_EQ(pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at)),
                static_cast<ssize_t>(bytes.size()));
    }
  }

  // Return the message of what opening, reading and writing throws; "" where nothing is thrown.
  std::string Use() const {
    std::string message;
    const auto guarded = [&](const std::function<void()>& fn) {
      try {
        fn();
      } catch (const std::bad_alloc&) {
        message += "bad_alloc;";
      } catch (const std::exception& error) {
        message += std::string(error.what()) + ";";
      }
    };
    guarded([&] { Read(); });
    guarded([&] {
      const auto memory = std::make_shared<SharedMemory>(fd_, SharedMemory::Access::kWrite);
      SharedWriter writer(memory, 0.0);
      Write(&writer, 0, 8);
      writer.Publish("three", "fine");
      writer.Settle();
    });
    return message;
  }
  void Read() const {
    const auto memory = std::make_shared<SharedMemory>(fd_, SharedMemory::Access::kRead);
    SharedReader reader(memory, 0, 1);
    const int place = reader.Enter();
    const std::vector<int64_t> ids = Range(-3, kKeys + 3);
    const std::vector<float> unknown(kMaxDim, -1.0f);
    for (size_t table = 0; table < memory->tables(); ++table) {
      std::vector<float> out(ids.size() * static_cast<size_t>(memory->spec(table).dim));
      try {
        reader.Lookup(place, table, View(ids), {}, unknown.data(), "t", out.data());
      } catch (const std::invalid_argument&) {  // an id outside a vocabulary
      }
    }
    reader.Leave(place);
  }
  // Set a number to what it should not be, one value after the other, and use the memory.
  void Damage(uint64_t at) {
    const uint64_t was = Number(at);
    std::vector<uint64_t> values = {0,
                                    ~uint64_t{0},
                                    was + 1,
                                    was ^ uint64_t{1} << 63,
                                    was ^ uint64_t{1} << 33,
                                    static_cast<uint64_t>(std::numeric_limits<int64_t>::max())};
#ifndef MSREC_SANITIZED
    for (const uint64_t more : {was - 1, was * 2, was + 64, was << 32, uint64_t{1} << 46, end_}) {
      values.push_back(more);
    }
#endif
    for (const uint64_t value : values) {
      SetNumber(at, value);
      Use();
      Restore();
    }
  }

  static constexpr uint64_t kKept = 160 << 10;
  const int fd_;
  uint64_t root_ = 0, overlay_ = 0, end_ = 0;
  std::vector<std::pair<uint64_t, std::string>> kept_;
};

uint64_t SpecAt(size_t table) {
  return offsetof(SharedControl, specs) + table * sizeof(SharedTableSpec);
}

TEST_F(DamageTest, WhatIsWholeIsRead) {
  EXPECT_EQ(Use(), "");
  Restore();
  EXPECT_EQ(Use(), "");
}

TEST_F(DamageTest, TheDescriptionSaysWhatIsWrongWithIt) {
  const auto expect = [&](uint64_t at, uint64_t value, const std::string& words) {
    SetNumber(at, value);
    EXPECT_NE(Use().find("the shared memory is damaged: " + words), std::string::npos)
        << at << " = " << value << ": " << Use();
    Restore();
  };
  const auto both = [](uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; };
  expect(offsetof(SharedControl, bytes), 17, "bytes must be ");
  expect(offsetof(SharedControl, tables), 1025, "tables must be at most 1024, got 1025");
  expect(offsetof(SharedControl, arena_offset), 8, "arena_offset must be a multiple of 4096 in ");
  expect(offsetof(SharedControl, arena_bytes), end_, "arena_bytes must be at most ");
  expect(SpecAt(1), both(0, 4), "of table 1, dim must be in [1, 8192], got 0");
  expect(SpecAt(1), both(8193, 4), "of table 1, dim must be in [1, 8192], got 8193");
  expect(SpecAt(1), both(0xffffffff, 4), "of table 1, dim must be in [1, 8192], got -1");
  expect(SpecAt(0), both(3, 7), "of table 0, bits must be 32, 8 or 4, got 7");
  expect(SpecAt(0) + offsetof(SharedTableSpec, vocabulary), ~uint64_t{0},
         "of table 0, vocabulary must be in [0, 2^32 - 2], got -1");
  expect(SpecAt(1) + offsetof(SharedTableSpec, rows_offset), 0,
         "of table 1, rows_offset must be a multiple of 4096 in [");
  expect(SpecAt(1) + offsetof(SharedTableSpec, rows_offset),
         Number(SpecAt(0) + offsetof(SharedTableSpec, rows_offset)),
         "of table 1, rows_offset must be a multiple of 4096 in [");
  expect(SpecAt(1) + offsetof(SharedTableSpec, rows_bytes), end_,
         "of table 1, rows_bytes must be at most ");
  SetNumber(0, 1);
  EXPECT_NE(Use().find("the shared memory is not laid out"), std::string::npos);
}

TEST_F(DamageTest, AnyNumberOfTheDescriptionMayBeWrong) {
  for (uint64_t at = 0; at < offsetof(SharedControl, readers); at += 8) Damage(at);
  for (const size_t table : {0, 1, 2}) {
    for (uint64_t at = 0; at < sizeof(SharedTableSpec); at += 8) Damage(SpecAt(table) + at);
  }
  Damage(offsetof(SharedControl, readers));
}

TEST_F(DamageTest, AnyNumberOfTheRootMayBeWrong) {
  // Of the parts of an index, which are alike, the first few.
  for (uint64_t at = 0; at < sizeof(SharedRoot); at += 8) Damage(root_ + at);
  for (const size_t table : {0, 1}) {
    const uint64_t first = root_ + sizeof(SharedRoot) + table * sizeof(SharedTableRoot);
    const uint64_t most = offsetof(SharedTableRoot, parts) + 4 * sizeof(SharedIndexPart);
    for (uint64_t at = 0; at < most; at += 8) Damage(first + at);
  }
}

TEST_F(DamageTest, AnyChangeAndAnyEntryMayBeWrong) {
  for (uint64_t i = 0; i < 8; ++i) {
    Damage(overlay_ + i * sizeof(SharedChange));
    Damage(overlay_ + i * sizeof(SharedChange) + 8);
  }
  const uint64_t part = Number(root_ + sizeof(SharedRoot) + offsetof(SharedTableRoot, parts));
  for (uint64_t at = 0; at < sizeof(SharedBucket); at += 8) Damage(part + at);
}

TEST_F(DamageTest, AnOverlayWithoutAFreeEntryEnds) {
  const uint64_t entries =
      Number(root_ + sizeof(SharedRoot) + offsetof(SharedTableRoot, overlay_entries));
  ASSERT_GT(entries, 0u);
  for (uint64_t i = 0; i < entries; ++i) {
    SetNumber(overlay_ + i * sizeof(SharedChange), 1000 + i);
    SetNumber(overlay_ + i * sizeof(SharedChange) + 8, uint64_t{kGone} << 32);
  }
  EXPECT_NO_THROW(Read());
  EXPECT_NE(Use().find("an overlay is full"), std::string::npos);
}

TEST_F(DamageTest, WhatChangesBehindAnOpenMemoryIsNotBelieved) {
  const auto memory = std::make_shared<SharedMemory>(fd_, SharedMemory::Access::kRead);
  const size_t stride = memory->stride(0);
  SetNumber(SpecAt(0), ~uint64_t{0});
  SetNumber(offsetof(SharedControl, tables), 1 << 20);
  SetNumber(offsetof(SharedControl, arena_bytes), ~uint64_t{0});
  EXPECT_EQ(memory->tables(), 2u);
  EXPECT_EQ(memory->stride(0), stride);
  EXPECT_THROW(memory->CheckRoot(end_), SharedDamaged);
}

}  // namespace
}  // namespace msrec
