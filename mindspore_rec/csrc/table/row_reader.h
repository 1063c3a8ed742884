// SPDX-License-Identifier: Apache-2.0
//
// RowReader: reads rows of a table from host memory or a lower tier. The values are the same as in
// an evaluation lookup. RowReader promotes no rows. If a device cache has newer values of a row,
// the newer values are written back before the row is read. If the host cannot access the newer
// values, std::runtime_error is thrown. RowReader is a part of a table; the caller must hold the
// table's mutex.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "rows/batch.h"
#include "rows/exported_rows.h"
#include "table/table_parts.h"

namespace msrec {

class RowReader {
 public:
  // Requires: core outlives this object.
  explicit RowReader(TableParts* core) : core_(*core) {}

  // Return the rows of `keys`, in the order of `keys`; null for keys without a row. Rows in lower
  // tiers are copied to `copies`.
  KeyedRows Find(const IdView& keys, std::vector<char>* copies);
  // Call fn with all rows that are not due for eviction, one part at a time. Requires that the rows
  // due for eviction were evicted from the shards.
  void Walk(const std::function<void(const KeyedRows&)>& fn);
  // Call fn with the rows outside host memory, one part at a time. Rows outside host memory are the
  // rows in lower tiers, including rows due for eviction, and the rows of a static table that have
  // no place yet (ShardContext::has_unseen).
  void WalkBelow(const std::function<void(const KeyedRows&)>& fn);
  // Number of rows in all tiers, including rows that are due for eviction and not evicted yet.
  size_t Count() const;

 private:
  // Call fn with the rows of a static table that were never looked up.
  void WalkUnseen(const std::vector<bool>& seen, const std::function<void(const KeyedRows&)>& fn);

  TableParts& core_;
};

}  // namespace msrec
