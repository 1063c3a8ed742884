// SPDX-License-Identifier: Apache-2.0
//
// BatchLookup: finds the rows of a batch and copies their values out: unique | fetch rows | expand,
// shard by shard while a shard's lines are in the processor's cache. A part of a table, under its
// mutex.
#pragma once

#include <cstdint>

#include "rows/batch.h"
#include "table/core/lookup_purpose.h"
#include "table/core/prepared_lookups.h"
#include "table/table_parts.h"

namespace msrec {

class BatchLookup {
 public:
  // Requires: core outlives it.
  explicit BatchLookup(TableParts* core) : core_(*core) {}

  // Fill batch->row for the purpose. Unless `out` is null, copy the rows' values to
  // [batch->n, dim] at out; keys without a row read `unknown`, ids that were dropped read zeros.
  // All that may throw runs before rows or counts change.
  void Run(Batch* batch, LookupPurpose purpose, const float* unknown, const RowsOut& out);

  // Do the first part of Run, for a training lookup that Finish completes: all that may throw. Add
  // the rows that it may insert to `pending`, which has the rows of earlier lookups.
  void Prepare(Batch* batch, PendingRows* pending);
  // Complete it. `moved`: others have inserted rows since; then it may throw, and nothing has
  // changed.
  void Finish(Batch* batch, bool moved, const float* unknown, const RowsOut& out);

 private:
  // Make room for what inserting may need besides `pending`, and make the batch unique where it
  // does not fit otherwise, or where there is `pending`. Returns whether the batch is unique.
  bool ReserveRows(Batch* batch, LookupPurpose purpose, const PendingRows* pending);
  // Find the rows of shards, and copy their values out.
  void Fetch(Batch* batch, LookupPurpose purpose, bool unique, const float* unknown,
             const RowsOut& out);
  // Show one shard of the batch the first values of a vocabulary's keys that were never trained.
  // Requires batch->copies with room for a row at each of the batch's positions.
  void ReadUnseen(Batch* batch, int shard);

  TableParts& core_;
};

}  // namespace msrec
