// SPDX-License-Identifier: Apache-2.0
//
// RowSizes: bytes of a row, of its parts and of what finds it. The one place that capacities given
// in bytes, and estimates made before there is a table, ask.
#pragma once

#include <cstddef>

#include "rows/row_layout.h"

namespace msrec {

struct RowSizes {
  explicit RowSizes(const RowLayout& layout);

  // The block (row_layout.h), which is also what tiers and devices are given.
  size_t metadata;
  size_t value;
  size_t state;
  size_t block;  // the sum of these

  // Around it, in host memory.
  size_t index;   // its part of the index, at the usual load; between 6.4 and 9.7 (index.h)
  size_t pin;     // of a row in a table with tiers below host memory
  size_t digest;  // of a row whose digest is kept (shard_digests.h); not part of in_host

  // Around it, in an SSD tier.
  size_t ssd_header;  // before the block on the disk; it is padded to 8 bytes there
  size_t ssd_index;   // of memory, at most, from a million rows on

  // Bytes of host memory, room for growth left out.
  size_t in_host(bool tiered) const { return block + index + (tiered ? pin : 0); }
};

}  // namespace msrec
