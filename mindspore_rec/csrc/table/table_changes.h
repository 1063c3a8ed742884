// SPDX-License-Identifier: Apache-2.0
//
// TableChanges: the calls on what changed in a table since a mark, and on the digest of all rows
// that is kept as they change. As Table: from any thread, under the table's mutex, with its
// exceptions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rows/exported_rows.h"
#include "table/table_engine.h"

namespace msrec {

class TableChanges {
 public:
  // Requires: engine outlives it.
  explicit TableChanges(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  // Start recording changes, if nobody has, and return a mark for ExportSince.
  uint64_t Mark();
  // Return the keys that changed since the mark, with their rows, or marked absent. Without sweep,
  // rows that are due but not freed yet are not among them: whoever has clock and rules can tell
  // which.
  ExportedRows ExportSince(uint64_t mark, bool with_state, bool sweep = true);
  // Drop what was recorded before the mark; 0 stops recording.
  void ReleaseBefore(uint64_t mark);

  // Keep the digest of all rows as they change, for KeptDigest, until nobody records changes.
  // Reads the rows below host memory and hashes all, once. It ends where memory for it runs out,
  // where a table of a vocabulary is cleared, where a limit of age is turned on or off, where a
  // damaged row in a lower tier is replaced, and where a mark is taken while a row's newest value
  // is out of the host's reach; ask anew after the next mark.
  // Requires a mark. Throws as reading the rows does, and keeps none then.
  void KeepDigest();
  // Return the digest that is kept, the same that the sum over Table::Digests is; nothing without
  // one. Throws std::runtime_error where a row's newest value is out of the host's reach.
  std::optional<uint64_t> KeptDigest();
  // Return the keys of rows whose values have changed in memory though nothing changed them since
  // the last mark. Looks at one of `parts` parts of the places of rows. Throws where no digest is
  // kept.
  std::vector<int64_t> DamagedRows(uint32_t part, uint32_t parts);

 private:
  // Have every shard keep its digest, computed anew.
  void RenewDigest();
  // Whether a digest is kept. Brings rows in host memory up to date, if so.
  bool DigestIsReady();
  // Bring rows in host memory up to date before an epoch ends, if a digest is kept; drop it where
  // that cannot be.
  void WriteBackForDigest() noexcept;

  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
