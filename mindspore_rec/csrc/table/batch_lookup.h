// SPDX-License-Identifier: Apache-2.0
//
// BatchLookup: finds the rows of a batch and copies the rows' values to the output. The stages are
// to make the keys unique, to find the keys' rows, and to copy the values. Each shard passes
// through all stages while the shard's data is in the processor's cache. BatchLookup is a part of a
// table; the caller must hold the table's mutex.
#pragma once

#include <cstdint>

#include "rows/batch.h"
#include "table/core/lookup_purpose.h"
#include "table/core/prepared_lookups.h"
#include "table/table_parts.h"

namespace msrec {

class BatchLookup {
 public:
  // Requires: core outlives this object.
  explicit BatchLookup(TableParts* core) : core_(*core) {}

  // Fill batch->row with the rows of the keys; `purpose` decides whether new keys get rows. If
  // `out` is not null, copy the rows' values to out [batch->n, dim]. For a key without a row, the
  // output is `unknown`; for a dropped id, the output is zeros. If Run throws, no row and no count
  // has changed.
  void Run(Batch* batch, LookupPurpose purpose, const float* unknown, const RowsOut& out);

  // Prepare a training lookup: do all parts of Run that may throw. Before the call, `pending`
  // contains the rows that previously prepared lookups may insert. Prepare adds to `pending` the
  // rows that this lookup may insert.
  void Prepare(Batch* batch, PendingRows* pending);
  // Complete a lookup that Prepare has prepared. `moved` is true if other lookups have inserted
  // rows since Prepare. If `moved` is false, Finish cannot throw. If `moved` is true, Finish may
  // throw an exception, which leaves the table unchanged.
  void Finish(Batch* batch, bool moved, const float* unknown, const RowsOut& out);

 private:
  // Reserve memory for the rows that the lookup may insert, in addition to the rows in `pending`.
  // Make the keys unique if the free memory does not suffice for one row per position, or if
  // `pending` is not null. Returns whether the keys are unique.
  bool ReserveRows(Batch* batch, LookupPurpose purpose, const PendingRows* pending);
  // Find the rows in all shards, and copy the rows' values to the output.
  void Fetch(Batch* batch, LookupPurpose purpose, bool unique, const float* unknown,
             const RowsOut& out);
  // In one shard, for each key in the vocabulary that was never trained, set batch->row to a row
  // with the key's first value. Requires that batch->copies has memory for one row per position.
  void ReadUnseen(Batch* batch, int shard);

  TableParts& core_;
};

}  // namespace msrec
