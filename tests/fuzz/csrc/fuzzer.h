// SPDX-License-Identifier: Apache-2.0
//
// Targets of fuzzing: functions of bytes that try a reader of foreign bytes. A target catches the
// exceptions that the reader documents; any other one, what a sanitizer reports, and more than a
// second of the processor's time are findings. fuzz_main.cc runs them on inputs by chance,
// by_coverage.cc under libFuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

namespace msrec {

using FuzzTarget = void (*)(const uint8_t* data, size_t size);

inline std::map<std::string, FuzzTarget>& FuzzTargets() {
  static std::map<std::string, FuzzTarget> targets;
  return targets;
}

struct AddFuzzTarget {
  AddFuzzTarget(const char* name, FuzzTarget target) { FuzzTargets()[name] = target; }
};

// Takes numbers and bytes off an input; zeros where it has ended.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }

  template <typename T>
  T Take() {
    T value{};
    const size_t n = left_ < sizeof(T) ? left_ : sizeof(T);
    if (n != 0) std::memcpy(&value, data_, n);
    Skip(n);
    return value;
  }
  std::string Bytes(size_t most) {
    const size_t n = left_ < most ? left_ : most;
    std::string found(n, '\0');
    if (n != 0) std::memcpy(&found[0], data_, n);
    Skip(n);
    return found;
  }

 private:
  void Skip(size_t n) {
    data_ += n;
    left_ -= n;
  }

  const uint8_t* data_;
  size_t left_;
};

}  // namespace msrec
