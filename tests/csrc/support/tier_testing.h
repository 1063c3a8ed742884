// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the SSD tier share: a directory, rows that tell their key and version.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tier/ssd_tier.h"

namespace msrec {

// Removed at the end. Under the working directory, which is on a disk, or in memory, where syncing
// costs nothing.
class TestDirectory {
 public:
  explicit TestDirectory(bool memory = false) {
    const bool shm = memory && std::filesystem::is_directory("/dev/shm");
    std::string name = std::string(shm ? "/dev/shm/" : "") + "tier_test_XXXXXX";
    path_ = std::filesystem::absolute(mkdtemp(&name[0])).string();
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A row filled with words that follow from key and version.
inline std::string RowOf(int64_t key, uint64_t version, size_t row_bytes) {
  std::string row(row_bytes, '\0');
  for (size_t at = 0; at < row_bytes; at += 8) {
    const uint64_t word = HashKey(key) ^ (version * 0x9e3779b97f4a7c15ULL + at);
    std::memcpy(&row[at], &word, std::min<size_t>(8, row_bytes - at));
  }
  return row;
}

inline void WriteOne(Tier* tier, int64_t key, uint64_t version) {
  tier->Write(&key, 1, RowOf(key, version, tier->row_bytes()).data());
}

inline void WriteMany(Tier* tier, const std::vector<int64_t>& keys, uint64_t version) {
  std::string rows;
  for (const int64_t key : keys) rows += RowOf(key, version, tier->row_bytes());
  tier->Write(keys.data(), keys.size(), rows.data());
}

struct ReadRows {
  std::vector<std::string> rows;  // empty where not found
};
inline ReadRows ReadMany(Tier* tier, const std::vector<int64_t>& keys) {
  const size_t row_bytes = tier->row_bytes();
  std::string rows(keys.size() * row_bytes, '\0');
  std::unique_ptr<bool[]> found(new bool[keys.size() + 1]);
  tier->Read(keys.data(), keys.size(), &rows[0], found.get());
  ReadRows out;
  for (size_t i = 0; i < keys.size(); ++i) {
    out.rows.push_back(found[i] ? rows.substr(i * row_bytes, row_bytes) : "");
  }
  return out;
}

inline SsdOptions SmallOptions(const std::string& path) {
  SsdOptions options;
  options.path = path;
  options.row_bytes = 40;
  options.segment_bytes = 64 << 10;
  options.direct = false;
  options.queue_depth = 8;
  return options;
}

}  // namespace msrec
