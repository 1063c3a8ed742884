// SPDX-License-Identifier: Apache-2.0
//
// ReadAhead: base class of finders. A finder is an object that finds the rows of many ids in order.
// Memory is far slower than the arithmetic on rows, so each thread keeps dozens of loads in flight.
// While a thread works on ids[i], the thread prefetches the index entry of ids[i + kFar] and the
// row of ids[i + kNear].
//
// Finder derives from ReadAhead<Finder> and has these methods:
//
//   void LoadIndex(size_t i);  // begin to load the index entry of ids[i], kFar ids ahead
//   void LoadRow(size_t i);    // begin to load the row of ids[i]; LoadIndex(i) was called before
#pragma once

#include <cstddef>

namespace msrec {

// A finder returns &kDroppedRow for an id that is not looked up.
inline constexpr char kDroppedRow = 0;

template <typename Finder>
class ReadAhead {
 protected:
  static constexpr size_t kFar = 48, kNear = 24;
  // Size of a ring buffer for data about the ids in flight. The data about ids[i] is at place i %
  // kRing.
  static constexpr size_t kRing = 64;
  static_assert(kNear < kFar && kFar < kRing);

  // Find ids [first, last).
  ReadAhead(size_t first, size_t last) : next_(first), last_(last) {}

  // Begin the loads for the first ids. Finder must call Begin once, at the end of its constructor.
  void Begin() {
    for (size_t i = next_; i < next_ + kFar; ++i) LoadIndexOf(i);
    for (size_t i = next_; i < next_ + kNear; ++i) LoadRowOf(i);
  }

  // Return the position of the next id, and begin loads for later ids.
  size_t Advance() {
    LoadIndexOf(next_ + kFar);
    LoadRowOf(next_ + kNear);
    return next_++;
  }

  static void Prefetch(const char* row, size_t bytes) {
    for (size_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b);
    __builtin_prefetch(row + bytes - 1);
  }

 private:
  void LoadIndexOf(size_t i) {
    if (i < last_) static_cast<Finder*>(this)->LoadIndex(i);
  }
  void LoadRowOf(size_t i) {
    if (i < last_) static_cast<Finder*>(this)->LoadRow(i);
  }

  size_t next_;
  const size_t last_;
};

}  // namespace msrec
