// SPDX-License-Identifier: Apache-2.0
//
// ReadAhead: base of what finds the rows of many ids, in their order. Memory is far slower than the
// arithmetic on rows, so each thread has some tens of loads under way: the index entry of an id is
// loaded kFar ids ahead of its use, its row kNear ids ahead.
//
// Finder derives from ReadAhead<Finder> and has
//
//   void LoadIndex(size_t i);  // begin to load the index entry of ids[i], kFar ids ahead
//   void LoadRow(size_t i);    // begin to load the row of ids[i]; LoadIndex(i) was called before
#pragma once

#include <cstddef>

namespace msrec {

// Its address stands for the row of an id that is not looked up.
inline constexpr char kDroppedRow = 0;

template <typename Finder>
class ReadAhead {
 protected:
  static constexpr size_t kFar = 48, kNear = 24;
  // Places for what is known of ids between LoadIndex and their use: that of ids[i] is i % kRing.
  static constexpr size_t kRing = 64;
  static_assert(kNear < kFar && kFar < kRing);

  // Ids [first, last).
  ReadAhead(size_t first, size_t last) : next_(first), last_(last) {}

  // Begin to load for the first ids. Call it when Finder is complete, once.
  void Begin() {
    for (size_t i = next_; i < next_ + kFar; ++i) LoadIndexOf(i);
    for (size_t i = next_; i < next_ + kNear; ++i) LoadRowOf(i);
  }

  // Return the position of the next id, and load for those to come.
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
