// SPDX-License-Identifier: Apache-2.0
#include "table/core/row_sizes.h"

#include "table/core/shard_context.h"
#include "tier/format.h"
#include "tier/key_positions.h"

namespace msrec {

RowSizes::RowSizes(const RowLayout& layout)
    : metadata(sizeof(RowMeta)),
      value(layout.value_bytes()),
      state(layout.state_bytes()),
      block(layout.stride()),
      index(8),
      pin(sizeof(RowPin)),
      digest(sizeof(uint64_t)),
      ssd_header(sizeof(RecordHeader)),
      ssd_index(KeyPositions::kMostBytesPerKey) {}

}  // namespace msrec
