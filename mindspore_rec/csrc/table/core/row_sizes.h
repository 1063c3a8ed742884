// SPDX-License-Identifier: Apache-2.0
//
// RowSizes: the number of bytes of a row, of each part of a row, and of the index per row. All
// computations with row sizes use RowSizes. Examples are the computation of a limit in bytes, and
// the memory estimate for a table that does not exist yet.
#pragma once

#include <cstddef>

#include "rows/row_layout.h"

namespace msrec {

struct RowSizes {
  explicit RowSizes(const RowLayout& layout);

  // Number of bytes of the row's block (row_layout.h) and of the block's parts. A row has the same
  // block in host memory and in lower tiers.
  size_t metadata;
  size_t value;
  size_t state;
  size_t block;  // the sum of metadata, value and state

  // Number of bytes per row in host memory, in addition to the row's block.
  size_t index;   // bytes of the index per row, at the usual load; between 6.4 and 9.7 (index.h)
  size_t pin;     // only in a table with tiers below host memory
  size_t digest;  // only if digests are kept (shard_digests.h); not part of in_host

  // Number of bytes per row in an SSD tier, in addition to the row's block.
  size_t ssd_header;  // precedes the block on the disk, where blocks are padded to 8 bytes
  size_t ssd_index;   // in memory; an upper limit for at least a million rows, if few rows were
                      // erased

  // Return the bytes of a row in host memory, without the memory reserved for growth.
  size_t in_host(bool tiered) const { return block + index + (tiered ? pin : 0); }
};

}  // namespace msrec
