// SPDX-License-Identifier: Apache-2.0
//
// Digests of many rows (row_digest.h). The loop is compiled once per instruction set, and the first
// call chooses the instruction set. With AVX2, the loop takes slightly more than half as long as
// without AVX2. All instruction sets compute the same digests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rows/row_digest.h"
#include "rows/row_layout.h"

namespace msrec {

// digests[i] = RowDigest(keys[i], values[i], bytes); i in [0, n).
using RowDigestsLoop = void (*)(const int64_t* keys, const char* const* values, size_t n,
                                size_t bytes, uint64_t* digests);

// Returns the loop for the instruction set that ActiveKernels names.
RowDigestsLoop ActiveRowDigests();

// Returns the loop for the instruction set `name`, or null if this CPU or build does not support
// that instruction set. For tests.
RowDigestsLoop FindRowDigests(const char* name);

// Computes the digests of rows that are stored in a table's layout.
void DigestRows(const RowLayout& layout, const char* const* rows, size_t n, uint64_t* digests);

// Collects rows, hashes several rows at a time, and calls fn(id, digest) for each row.
template <typename Fn>
class DigestBatch {
 public:
  DigestBatch(const RowLayout& layout, const Fn& fn) : layout_(layout), fn_(fn) {}

  void Add(uint32_t id, const char* row) {
    ids_[n_] = id;
    rows_[n_++] = row;
    if (n_ == kMost) Flush();
  }
  // Call fn for the remaining rows.
  void Flush() {
    uint64_t digests[kMost];
    DigestRows(layout_, rows_, n_, digests);
    for (size_t i = 0; i < n_; ++i) fn_(ids_[i], digests[i]);
    n_ = 0;
  }

 private:
  static constexpr size_t kMost = 32;

  const RowLayout& layout_;
  const Fn fn_;
  size_t n_ = 0;
  uint32_t ids_[kMost];
  const char* rows_[kMost];
};

}  // namespace msrec
