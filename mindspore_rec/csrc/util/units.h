// SPDX-License-Identifier: Apache-2.0
//
// Types for amounts; each type states the unit.
#pragma once

#include <chrono>
#include <cstdint>

namespace msrec {

struct Bytes {
  int64_t count = 0;

  Bytes() = default;
  template <typename Integer>
  explicit Bytes(Integer n) : count(static_cast<int64_t>(n)) {}
  Bytes& operator+=(Bytes other) {
    count += other.count;
    return *this;
  }
};

using Seconds = std::chrono::duration<double>;

}  // namespace msrec
