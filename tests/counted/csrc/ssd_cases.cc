// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cases.h"
#include "meter.h"
#include "support.h"
#include "tier/ssd_tier.h"

namespace msrec {
namespace {

constexpr uint64_t kKeys = 20000;
constexpr size_t kIds = 10000;
constexpr size_t kRowBytes = 212;  // 16 floats, Adam's state and metadata

class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "counted_XXXXXX").string();
    if (mkdtemp(&name[0]) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

void CountSsdRead() {
  const Directory directory;
  SsdOptions options;
  options.path = directory.path();
  options.row_bytes = kRowBytes;
  options.segment_bytes = 1 << 20;
  // Read the rows from the page cache by pread, so that counts do not depend on disk and kernel.
  options.direct = false;
  options.io_uring = false;
  options.background_gc = false;
  SsdTier tier(options);
  const std::vector<int64_t> keys = CountedKeys(0, kKeys);
  std::vector<char> rows(kKeys * kRowBytes);
  CountedRandom random(11);
  for (size_t at = 0; at + 8 <= rows.size(); at += 8) {
    const uint64_t word = random.Next();
    std::memcpy(&rows[at], &word, 8);
  }
  tier.Write(keys.data(), keys.size(), rows.data());
  tier.Flush();
  std::vector<int64_t> ids;
  for (size_t i = 0; i < kIds; ++i) ids.push_back(CountedKey(random.Below(kKeys + kKeys / 10)));
  std::unique_ptr<bool[]> found(new bool[kIds]);
  tier.Read(ids.data(), kIds / 10, rows.data(), found.get());
  const Meter meter;
  tier.Read(ids.data(), kIds, rows.data(), found.get());
}

}  // namespace msrec
