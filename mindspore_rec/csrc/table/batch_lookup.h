// SPDX-License-Identifier: Apache-2.0
//
// BatchLookup: finds the rows of a batch and copies their values to the output: unique | fetch rows
// | expand. The work is done shard by shard, while a shard's lines are in the processor's cache.
// BatchLookup is a part of a table and runs under the table's mutex.
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

  // Fill batch->row for the purpose. Unless `out` is null, copy the rows' values to out [batch->n,
  // dim]. Keys without a row read `unknown`, and dropped ids read zeros. Every operation that may
  // throw runs before rows or counts change.
  void Run(Batch* batch, LookupPurpose purpose, const float* unknown, const RowsOut& out);

  // Do the first part of Run, which may throw, for a training lookup that Finish completes. Add the
  // rows that this lookup may insert to `pending`, which has the rows of earlier lookups.
  void Prepare(Batch* batch, PendingRows* pending);
  // Complete the lookup of Prepare. `moved` is true if other lookups have inserted rows since
  // Prepare. With `moved`, Finish may throw, and then nothing has changed.
  void Finish(Batch* batch, bool moved, const float* unknown, const RowsOut& out);

 private:
  // Make room for the rows that the lookup may insert, in addition to `pending`. The batch is made
  // unique if there is too little room for one row per position, or if `pending` is not null.
  // Returns whether the batch is unique.
  bool ReserveRows(Batch* batch, LookupPurpose purpose, const PendingRows* pending);
  // Find the rows of all shards, and copy their values to the output.
  void Fetch(Batch* batch, LookupPurpose purpose, bool unique, const float* unknown,
             const RowsOut& out);
  // For one shard of the batch, show the first values of vocabulary keys that were never trained.
  // Requires batch->copies with room for one row per position.
  void ReadUnseen(Batch* batch, int shard);

  TableParts& core_;
};

}  // namespace msrec
