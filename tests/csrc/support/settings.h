// SPDX-License-Identifier: Apache-2.0
//
// Numbers that who runs the tests may set: MINDSPORE_REC_TESTS="lives=100,first_life=7". Tests in
// Python read the variable too (tests/support/settings.py), so that their keys are legal here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>

namespace msrec {

inline constexpr const char* kSettings[] = {
    "lives",           "first_life",      "kills",        "combination_kills",
    "worker_kills",    "killed_workers",  "networks",     "first_network",
    "network_workers", "network_changes", "network_mode", "file_changes",
};

// Returns the number of a key in pairs key=value with commas between them, or `otherwise`. Throws
// std::invalid_argument, which names the legal keys, if a pair has none of them.
inline uint64_t SettingIn(const std::string& text, const std::string& key, uint64_t otherwise) {
  uint64_t number = otherwise;
  std::istringstream pairs(text);
  for (std::string pair; std::getline(pairs, pair, ',');) {
    const size_t equals = pair.find('=');
    const std::string name = pair.substr(0, equals);
    const bool legal =
        std::find(std::begin(kSettings), std::end(kSettings), name) != std::end(kSettings);
    if (equals == std::string::npos || !legal) {
      std::string keys;
      for (const char* each : kSettings) keys += std::string(" ") + each;
      throw std::invalid_argument("MINDSPORE_REC_TESTS has '" + pair +
                                  "'; it takes key=value with the keys" + keys);
    }
    if (name == key) number = std::stoull(pair.substr(equals + 1));
  }
  return number;
}

inline uint64_t Setting(const std::string& key, uint64_t otherwise) {
  const char* text = std::getenv("MINDSPORE_REC_TESTS");
  return SettingIn(text == nullptr ? "" : text, key, otherwise);
}

}  // namespace msrec
