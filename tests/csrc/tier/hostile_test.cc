// SPDX-License-Identifier: Apache-2.0
//
// Opening directories of an SSD tier that somebody else has written, or is writing: numbers that
// cannot be, under checksums that are right.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "fault_env.h"
#include "testing.h"
#include "tier_testing.h"
#include "util/crc32c.h"

namespace msrec {
namespace {

namespace fs = std::filesystem;

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

void Spill(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

uint64_t WordAt(const std::string& text, size_t at) {
  uint64_t word = 0;
  std::memcpy(&word, &text[at], sizeof word);
  return word;
}

void SetWord(std::string* text, size_t at, uint64_t word) {
  std::memcpy(&(*text)[at], &word, sizeof word);
}

// Where format.cc has them in a block of administration: magic 8, version 4, crc 4, segment 8, four
// values of 8.
constexpr size_t kBlockValues = 24;

void FixBlock(std::string* file, size_t block) {
  const uint32_t crc = Crc32c(0, &(*file)[block + 16], 40);
  std::memcpy(&(*file)[block + 12], &crc, sizeof crc);
}

// The manifest's body with a checksum that is right.
std::string Signed(const std::string& body) {
  return body + "crc32c " + std::to_string(Crc32c(0, body.data(), body.size())) + "\n";
}

std::string Body(const std::string& manifest) { return manifest.substr(0, manifest.rfind("crc")); }

// A segment's file in memory.
struct SegmentFile {
  SegmentFile(const std::string& p, uint64_t number, const RecordShape& s)
      : path(p), id(number), shape(s), text(Slurp(p)) {}

  size_t trailer() const { return text.size() - kBlock; }
  uint64_t value(size_t i) const { return WordAt(text, trailer() + kBlockValues + 8 * i); }
  uint64_t slots() const { return value(0); }
  uint64_t footer() const { return value(2); }
  void Set(size_t block, size_t i, uint64_t value) {
    SetWord(&text, block + kBlockValues + 8 * i, value);
    FixBlock(&text, block);
  }
  void SetTrailer(size_t i, uint64_t value) { Set(trailer(), i, value); }
  // As wide as the trailer says, where that lies in the file.
  void FixFooter() {
    const uint64_t bytes = value(0) * 8 + value(1) * 4;
    if (footer() + bytes > text.size()) return;
    SetTrailer(3, Crc32c(0, &text[footer()], bytes));
  }
  void FixRecord(uint64_t slot) {
    const uint64_t place[2] = {id, slot};
    char* record = &text[shape.OffsetOf(slot)];
    const uint32_t crc = Crc32c(Crc32c(0, place, sizeof place), record + 4, shape.record_bytes - 4);
    std::memcpy(record, &crc, sizeof crc);
  }
  void Store() const { Spill(path, text); }

  std::string path;
  uint64_t id;
  RecordShape shape;
  std::string text;
};

// A log of several segments with old versions and tombstones; `killed` with the last one open, as
// `killed` processes leave it, `closed` with all sealed.
class HostileDirectory : public ::testing::Test {
 protected:
  static constexpr int64_t kKeys = 1500;

  void SetUp() override {
    options_ = SmallOptions(directory_.path() + "/tier");
    options_.segment_bytes = 48 << 10;
    options_.background_gc = false;
    SsdOptions writing = options_;
    {
      SsdTier tier(writing);
      std::vector<int64_t> keys;
      for (int64_t key = 0; key < kKeys; ++key) keys.push_back(key);
      WriteMany(&tier, keys, 1);
      tier.Erase(keys.data(), 300);
      WriteMany(&tier, {keys.begin() + 100, keys.begin() + 900}, 2);
      tier.Erase(keys.data() + 850, 100);
      WriteMany(&tier, {keys.begin() + 400, keys.begin() + 500}, 3);
      tier.Flush();
      fs::copy(options_.path, directory_.path() + "/killed", fs::copy_options::recursive);
    }
    fs::rename(options_.path, directory_.path() + "/closed");
    for (int64_t key = 0; key < kKeys; ++key) {
      for (uint64_t version = 1; version <= 3; ++version) written_.insert(RowOf(key, version, 40));
    }
  }

  // A fresh copy at options_.path.
  void Take(const std::string& state) {
    fs::remove_all(options_.path);
    fs::copy(directory_.path() + "/" + state, options_.path, fs::copy_options::recursive);
  }
  std::string ManifestPath() const { return options_.path + "/MANIFEST"; }
  SegmentFile Load(uint64_t id) const {
    return SegmentFile(options_.path + "/" + SegmentName(id), id, RecordShape(40));
  }
  void SetManifest(const std::string& body) { Spill(ManifestPath(), Signed(body)); }

  // What the exception says must name a file of the directory. Returns whether it was thrown.
  bool Refused(const std::function<void()>& call) {
    try {
      call();
      return false;
    } catch (const Corruption& error) {
      EXPECT_EQ(error.path().find(options_.path + "/"), 0u) << error.what();
      last_ = error.what();
    } catch (const IoError& error) {
      EXPECT_EQ(error.path().find(options_.path), 0u) << error.what();
      last_ = error.what();
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(options_.path), std::string::npos) << error.what();
      last_ = error.what();
    }
    return true;
  }

  // Opens and uses it in every way. What is answered was written, but for the keys in `forged`.
  void Use(const std::set<int64_t>& forged = {}) {
    opened_ = false;
    SsdOptions options = options_;
    for (const bool read_only : {true, false}) {
      options.read_only = read_only;
      Refused([&] {
        SsdTier tier(options);
        opened_ = true;
        for (int64_t key = 0; key < kKeys; key += 7) {
          Refused([&] {
            const std::string row = ReadMany(&tier, {key}).rows[0];
            if (row.empty() || forged.count(key) != 0) return;
            EXPECT_TRUE(row == RowOf(key, 1, 40) || row == RowOf(key, 2, 40) ||
                        row == RowOf(key, 3, 40))
                << key;
          });
        }
        Refused([&] {
          const auto scan = tier.Scan(false);
          std::vector<int64_t> keys;
          std::vector<char> rows;
          while (scan->Next(500, &keys, &rows)) {
            for (size_t i = 0; i < keys.size(); ++i) {
              const std::string row(&rows[i * 40], 40);
              if (forged.count(keys[i]) == 0) {
                EXPECT_EQ(written_.count(row), 1u) << keys[i];
              }
            }
          }
        });
        Refused([&] { static_cast<void>(tier.Verify()); });
        if (!read_only) {
          Refused([&] {
            WriteOne(&tier, 5, 2);
            tier.Compact();
          });
          Refused([&] { tier.Close(); });
        }
      });
      Refused([&] { static_cast<void>(SsdTier::VerifyFiles(options.path)); });
    }
  }

  TestDirectory directory_{true};
  SsdOptions options_;
  std::set<std::string> written_;
  std::string last_;
  bool opened_ = false;
};

// A limit of address space for a scope: what asks for more than the files justify fails.
class LittleMemory {
 public:
  LittleMemory() {
#ifndef MSREC_SANITIZED  // sanitizers map terabytes
    ::getrlimit(RLIMIT_AS, &before_);
    std::ifstream statm("/proc/self/statm");
    uint64_t pages = 0;
    statm >> pages;
    rlimit now = before_;
    now.rlim_cur = pages * static_cast<uint64_t>(::getpagesize()) + (uint64_t{256} << 20);
    ::setrlimit(RLIMIT_AS, &now);
#endif
  }
  ~LittleMemory() {
#ifndef MSREC_SANITIZED
    ::setrlimit(RLIMIT_AS, &before_);
#endif
  }

 private:
  rlimit before_{};
};

// A hang ends the process.
class Deadline {
 public:
  explicit Deadline(unsigned seconds) { ::alarm(seconds); }
  ~Deadline() { ::alarm(0); }
};

// Whatever is looked at before the lock is held may be another process's half-done work.
TEST(SsdTierOpen, LooksAtNothingBeforeItHasTheLock) {
  TestDirectory directory(true);
  for (const bool knows_size : {true, false}) {
    fs::remove_all(directory.path() + "/tier");
    SsdOptions large = SmallOptions(directory.path() + "/tier");
    large.segment_bytes = 1 << 20;
    large.background_gc = false;
    auto other = std::make_unique<SsdTier>(large);
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < 9000; ++key) keys.push_back(key);
    FaultEnv env(1);
    env.FailWith([&](const std::string& call, const std::string&) {
      if (call == "lock" && other != nullptr) {  // just now it writes and closes
        WriteMany(other.get(), keys, 1);
        other.reset();
      }
      return 0;
    });
    SsdOptions small = SmallOptions(directory.path() + "/tier");
    small.background_gc = false;
    if (!knows_size) small.row_bytes = 0;
    SsdTier tier(small, &env);
    ASSERT_EQ(tier.size(), keys.size());
    const ReadRows read = ReadMany(&tier, keys);
    for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(read.rows[i], RowOf(keys[i], 1, 40));
  }
}

TEST_F(HostileDirectory, AsItIsItOpens) {
  for (const char* state : {"closed", "killed"}) {
    Take(state);
    Use();
    EXPECT_TRUE(opened_) << last_;
    Take(state);
    SetManifest(Body(Slurp(ManifestPath())));
    Use();
    EXPECT_TRUE(opened_) << last_;
  }
}

TEST_F(HostileDirectory, AManifestOfImpossibleNumbersIsRefused) {
  const Deadline deadline(60);
  const LittleMemory memory;
  Take("killed");
  const std::string good = Body(Slurp(ManifestPath()));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string body = good;
    const size_t at = body.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    body.replace(at, body.find_first_of(" \n", at + from.size()) - at, to);
    return body;
  };
  const std::string line =
      good.substr(good.find("segment 1 "), good.find("segment 2 ") - good.find("segment 1 "));
  std::vector<std::string> bodies = {"",
                                     "\n",
                                     good + line,
                                     good + good,
                                     good + "segment 77 open\n",
                                     line + good,
                                     good.substr(0, good.size() - 1),
                                     good + " ",
                                     with("segment 2 sealed ", "segment 2 open")};
  for (const char* number : {"0", "-1", "4294967296", "9223372036854775808", "18446744073709551615",
                             "18446744073709551616", "99999999999999999999999", "x", ""}) {
    bodies.push_back(with("segment 2 sealed ", std::string("segment 2 sealed ") + number));
    bodies.push_back(with("segment 2 ", std::string("segment ") + number + " "));
    bodies.push_back(with("row_bytes ", std::string("row_bytes ") + number));
    if (std::string(number) == "4294967296") continue;  // there may have been that many
    bodies.push_back(with("next_id ", std::string("next_id ") + number));
  }
  bodies.push_back(with("segment 2 sealed ", "segment 2 sealed 5000"));
  bodies.push_back(with("row_bytes ", "row_bytes 16777216"));
  bodies.push_back(with("row_bytes ", "row_bytes 41"));
  for (const std::string& body : bodies) {
    for (const size_t row_bytes : {size_t{0}, size_t{40}}) {
      for (const bool read_only : {true, false}) {
        Take("killed");
        SetManifest(body);
        SsdOptions options = options_;
        options.row_bytes = row_bytes;
        options.segment_bytes = 0;
        options.read_only = read_only;
        EXPECT_TRUE(Refused([&] { SsdTier tier(options); })) << body;
        Refused([&] { static_cast<void>(SsdTier::VerifyFiles(options.path)); });
        // Nothing was thrown away over it.
        EXPECT_EQ(Load(2).text, Slurp(directory_.path() + "/killed/" + SegmentName(2)));
      }
    }
  }
}

TEST_F(HostileDirectory, AFooterOfImpossibleNumbersIsMadeGoodFromTheRecords) {
  const Deadline deadline(60);
  const LittleMemory memory;
  Take("closed");
  uint64_t id = 1;  // the first with tombstones
  while (Load(id).value(1) == 0) ++id;
  const SegmentFile good = Load(id);
  const auto expect_rebuilt = [&](const std::function<void(SegmentFile*)>& change,
                                  const std::string& what) {
    SegmentFile file = good;
    change(&file);
    file.Store();
    SsdTier tier(options_);
    EXPECT_EQ(tier.Stats().rebuilt_footers, 1u) << what;
    EXPECT_EQ(ReadMany(&tier, {450, 120, 20, 860, 1400}).rows,
              (std::vector<std::string>{RowOf(450, 3, 40), RowOf(120, 2, 40), "", "",
                                        RowOf(1400, 1, 40)}))
        << what;
    good.Store();
  };
  const uint64_t slots = good.slots();
  const size_t list = good.footer() + 8 * slots;  // of tombstones
  for (const uint64_t number :
       {uint64_t{1}, slots - 1, slots, slots + 1, uint64_t{1} << 30, uint64_t{1} << 32,
        uint64_t{1} << 61, uint64_t{1} << 62, ~uint64_t{0}}) {
    for (const size_t i : {0, 1, 2}) {
      if (number == good.value(i)) continue;
      expect_rebuilt([&](SegmentFile* f) { f->SetTrailer(i, number); },
                     "trailer value " + std::to_string(i) + " = " + std::to_string(number));
    }
  }
  // The number of tombstones for which 8 * slots + 4 * number is what it was, modulo 2^64.
  expect_rebuilt([&](SegmentFile* f) { f->SetTrailer(1, f->value(1) + (uint64_t{1} << 62)); },
                 "a sum that overflows");
  // A list that names rows, the same record twice, or what is beyond the end.
  uint32_t first = 0;
  std::memcpy(&first, &good.text[list], sizeof first);
  uint32_t row = 0;
  while (WordAt(good.text, good.shape.OffsetOf(row)) >> 32 != kRowRecord) ++row;
  for (const uint32_t slot : {row, static_cast<uint32_t>(slots), ~uint32_t{0}, ~uint32_t{0} - 1}) {
    expect_rebuilt(
        [&](SegmentFile* f) {
          std::memcpy(&f->text[list], &slot, sizeof slot);
          f->FixFooter();
        },
        "tombstone " + std::to_string(slot));
  }
}

// A row's key is where a record of tombstones has their number.
TEST_F(HostileDirectory, ARowTakenForATombstoneIsNotReadBeyondItsEnd) {
  const LittleMemory memory;
  for (const int64_t key : {int64_t{1000}, int64_t{100000}, int64_t{1} << 40, int64_t{-1}}) {
    fs::remove_all(options_.path);
    {
      SsdTier tier(options_);
      WriteMany(&tier, {1, key, 2}, 1);
    }
    SegmentFile file = Load(1);
    ASSERT_EQ(file.slots(), 3u);
    file.SetTrailer(1, 1);  // 8 * 3 + 4 bytes are in the block that was there
    const uint32_t slot = 1;
    std::memcpy(&file.text[file.footer() + 24], &slot, sizeof slot);
    file.FixFooter();
    file.Store();
    SsdTier tier(options_);
    EXPECT_EQ(tier.size(), 3u);
    EXPECT_EQ(ReadMany(&tier, {key}).rows[0], RowOf(key, 1, 40));
    EXPECT_EQ(tier.Stats().rebuilt_footers, 1u);
  }
}

TEST_F(HostileDirectory, AnOpenSegmentOfImpossibleNumbersIsRefusedOrHarmless) {
  const Deadline deadline(60);
  const LittleMemory memory;
  Take("killed");
  uint64_t id = 1;
  while (fs::exists(options_.path + "/" + SegmentName(id + 1))) ++id;
  for (const uint64_t number : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 31, uint64_t{1} << 32,
                                uint64_t{1} << 58, uint64_t{1} << 63, ~uint64_t{0}}) {
    Take("killed");
    SegmentFile file = Load(id);
    file.Set(0, 1, number);  // the room it had
    file.Store();
    Use();
    Take("killed");
    file = Load(id);
    file.Set(kBlock, 0, 1000);
    file.Set(kBlock, 1, number);  // records that were synced
    file.Store();
    Use();
    EXPECT_EQ(opened_, number <= 1) << number;
  }
}

// Much damage is told in few words.
TEST_F(HostileDirectory, VerifyListsThousandsOfDamagedRecordsByTheirNumber) {
  fs::remove_all(options_.path);
  SsdOptions options = options_;
  options.segment_bytes = 1 << 20;
  constexpr uint64_t kRows = 5000;
  {
    SsdTier tier(options);
    std::vector<int64_t> keys;
    for (uint64_t key = 0; key < kRows; ++key) keys.push_back(static_cast<int64_t>(key));
    WriteMany(&tier, keys, 1);
  }
  SegmentFile file = Load(1);
  for (uint64_t slot = 0; slot < kRows; ++slot) file.text[file.shape.OffsetOf(slot) + 20] ^= 1;
  file.Store();
  const std::vector<Corruption> problems = SsdTier(options).Verify();
  ASSERT_EQ(problems.size(), 1001u);
  EXPECT_EQ(problems[999].offset(), file.shape.OffsetOf(999));
  EXPECT_NE(problems[1000].problem().find("4000 more records, 5000 in all"), std::string::npos);
}

// Chance changes, checksums made right: it opens with rows that were written, or says which file.
TEST_F(HostileDirectory, SurvivesChance) {
  const Deadline deadline(300);
  const LittleMemory memory;
  Rng rng(20);
  const auto number = [&](uint64_t near) -> uint64_t {
    switch (rng.Below(6)) {
      case 0:
        return near + rng.Below(5) - 2;
      case 1:
        return ~uint64_t{0} - rng.Below(3);
      case 2:
        return (uint64_t{1} << rng.Below(64)) - rng.Below(2);
      case 3:
        return rng.Below(100);
      case 4:
        return near ^ uint64_t{1} << rng.Below(64);
      default:
        return rng.Bits();
    }
  };
  size_t opened = 0, refused = 0;
  for (size_t round = 0; round < 300 / kFewer + 100; ++round) {
    const bool killed = rng.OneIn(2);
    Take(killed ? "killed" : "closed");
    uint64_t last = 1;
    while (fs::exists(options_.path + "/" + SegmentName(last + 1))) ++last;
    std::set<int64_t> forged;
    for (size_t changes = 1 + rng.Below(2); changes > 0; --changes) {
      const uint64_t id = 1 + rng.Below(last);
      if (!fs::exists(options_.path + "/" + SegmentName(id))) continue;
      SegmentFile file = Load(id);
      if (file.text.size() < kDataOffset + kBlock) continue;
      const bool sealed = !(killed && id == last);
      switch (rng.Below(8)) {
        case 0: {  // the manifest: a number, a line, a byte
          std::string body = Body(Slurp(ManifestPath()));
          std::vector<size_t> digits;
          for (size_t i = 1; i < body.size(); ++i) {
            if (std::isdigit(body[i]) && !std::isdigit(body[i - 1])) digits.push_back(i);
          }
          if (digits.empty()) break;
          const size_t at = digits[rng.Below(digits.size())];
          const size_t n = body.find_first_not_of("0123456789", at) - at;
          if (rng.OneIn(4)) {
            body[rng.Below(body.size())] = static_cast<char>(rng.Bits());
          } else {
            body.replace(at, n, std::to_string(number(std::stoull("0" + body.substr(at, 9)))));
          }
          SetManifest(body);
          break;
        }
        case 1:  // header or marks
          file.Set(kBlock * rng.Below(3), rng.Below(2), number(file.shape.SlotsIn(48 << 10)));
          break;
        case 2:  // trailer
          if (!sealed) break;
          {
            const size_t i = rng.Below(3);
            file.SetTrailer(i, number(file.value(i)));
            if (rng.OneIn(2) && file.value(0) < 10000 && file.value(1) < 10000 &&
                file.footer() < file.text.size()) {
              file.FixFooter();
            }
          }
          break;
        case 3:  // footer: keys, or the list of tombstones
        case 4:
          if (!sealed || file.value(0) > 10000 || file.value(1) > 10000 ||
              file.footer() + 8 * file.value(0) + 4 * file.value(1) > file.text.size()) {
            break;
          }
          for (size_t i = 1 + rng.Below(4); i > 0 && file.value(0) > 0; --i) {
            if (rng.OneIn(2)) {
              SetWord(&file.text, file.footer() + 8 * rng.Below(file.value(0)),
                      number(rng.Below(kKeys)));
            } else if (file.value(1) > 0) {
              const auto slot = static_cast<uint32_t>(number(rng.Below(file.value(0))));
              std::memcpy(
                  &file.text[file.footer() + 8 * file.value(0) + 4 * rng.Below(file.value(1))],
                  &slot, sizeof slot);
            }
          }
          file.FixFooter();
          break;
        case 5: {  // a record: its kind, its key, a word of a tombstone
          const uint64_t slots = std::min<uint64_t>(file.shape.MostIn(file.text.size()), 500);
          const uint64_t slot = rng.Below(slots);
          const size_t at = file.shape.OffsetOf(slot);
          RecordHeader header;
          std::memcpy(&header, &file.text[at], sizeof header);
          forged.insert(header.key);
          if (rng.OneIn(3)) {
            header.kind = static_cast<uint32_t>(number(header.kind));
          } else if (rng.OneIn(2)) {
            header.key = static_cast<int64_t>(number(rng.Below(kKeys)));
          }
          forged.insert(header.key);
          std::memcpy(&file.text[at], &header, sizeof header);
          if (header.kind == kTombstoneRecord && rng.OneIn(2)) {
            SetWord(&file.text, at + 16 + 8 * rng.Below(5), number(rng.Below(kKeys)));
          }
          file.FixRecord(slot);
          break;
        }
        case 6:  // cut off, or with nothing behind it
          file.text.resize(rng.OneIn(2) ? rng.Below(file.text.size())
                                        : file.text.size() + kBlock * rng.Below(9));
          break;
        default:  // another segment's file, or none
          if (rng.OneIn(4)) {
            fs::remove(file.path);
            continue;
          }
          file.text = Load(1 + rng.Below(last)).text;
      }
      file.Store();
    }
    Use(forged);
    (opened_ ? opened : refused) += 1;
    if (HasFailure()) {
      fs::copy(options_.path, "hostile_case", fs::copy_options::recursive);
      FAIL() << "round " << round << ": " << last_ << "; the directory is kept as hostile_case";
    }
  }
  EXPECT_GT(opened, 20u);
  EXPECT_GT(refused, 20u);
}

}  // namespace
}  // namespace msrec
