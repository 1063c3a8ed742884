// SPDX-License-Identifier: Apache-2.0
//
// TableChanges: the methods that record and return a table's changes since a mark, and the methods
// for the digest of all rows. The digest is updated whenever rows change. Any thread may call the
// methods of TableChanges; the methods lock the table's mutex and throw the same exceptions as
// Table.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rows/exported_rows.h"
#include "table/table_engine.h"

namespace msrec {

class TableChanges {
 public:
  // Requires: engine outlives this object.
  explicit TableChanges(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  // Start recording changes, unless recording has started already, and return a mark for
  // ExportSince.
  uint64_t Mark();
  // Return the keys that changed since the mark. The result contains the row of each key, or marks
  // the key as absent. If `sweep` is true, rows due for eviction are freed first, so the result
  // marks their keys as absent. If `sweep` is false, rows due for eviction are in the result only
  // if they changed since the mark. The table's clock and eviction rules determine which rows are
  // due for eviction.
  ExportedRows ExportSince(uint64_t mark, bool with_state, bool sweep = true);
  // Drop the changes recorded before the mark; a mark of 0 stops recording.
  void ReleaseBefore(uint64_t mark);

  // Keep the digest of all rows up to date for KeptDigest, until recording stops. KeepDigest reads
  // the rows in lower tiers and hashes all rows once. The digest is dropped if memory runs out, if
  // a static table is cleared, or if an age limit is turned on or off. The digest is also dropped
  // if a damaged row in a lower tier is replaced, or if the table gets a first event time again
  // after its clock was reset. Mark also drops the digest if a row's newest value is in device
  // memory that the host cannot access. If the digest was dropped, call Mark and then KeepDigest to
  // get a digest again. Requires an earlier call of Mark. If reading a row throws an exception,
  // KeepDigest throws the exception and keeps no digest.
  void KeepDigest();
  // Return the digest of all rows, which is the sum of the digests that Table::Digests passes to
  // fn. Return no value if no digest is kept. Throws std::runtime_error if a row's newest value is
  // in device memory that the host cannot access.
  std::optional<uint64_t> KeptDigest();
  // Check the rows in host memory that the table has not changed since the last mark; return the
  // keys of rows whose values do not match the stored digests. The places of the rows in memory are
  // divided into `parts` parts, and only rows in part `part` are checked. Throws if no digest is
  // kept.
  std::vector<int64_t> DamagedRows(uint32_t part, uint32_t parts);

 private:
  // Make every shard compute its digest again and, from then on, keep the digest up to date.
  void RenewDigest();
  // Return true if the table keeps a digest. If the table keeps a digest and has a device cache,
  // first write the changed rows of the cache back to host memory, so that the digest includes the
  // rows' newest values.
  bool DigestIsReady();
  // Call WriteBackForDigest before an epoch ends. If the table keeps a digest and has a device
  // cache, WriteBackForDigest writes the changed rows of the cache back to host memory. If a row
  // cannot be written back, WriteBackForDigest drops the digest.
  void WriteBackForDigest() noexcept;

  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
