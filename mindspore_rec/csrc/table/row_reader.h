// SPDX-License-Identifier: Apache-2.0
//
// RowReader: reads rows of a table as evaluation sees them, in host memory or in a lower tier; it
// promotes none. Rows that a device cache has newer values of are written back first, which throws
// where they are out of the host's reach. A part of a table, under its mutex.
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
  // Requires: core outlives it.
  explicit RowReader(TableParts* core) : core_(*core) {}

  // Return the rows of these keys, in this order; null for keys without one. Rows in lower tiers
  // are copied to `copies`.
  KeyedRows Find(const IdView& keys, std::vector<char>* copies);
  // Call fn with all rows that are not due, a part at a time. Requires that the shards have been
  // swept.
  void Walk(const std::function<void(const KeyedRows&)>& fn);
  // Call fn with the rows that are not in host memory, a part at a time: rows in lower tiers, due
  // ones among them, and rows of a static table that have no place yet.
  void WalkBelow(const std::function<void(const KeyedRows&)>& fn);
  // Number of rows, wherever they are; those that are due and not swept yet among them.
  size_t Count() const;

 private:
  // Call fn with the rows of a static table that were never looked up.
  void WalkUnseen(const std::vector<bool>& seen, const std::function<void(const KeyedRows&)>& fn);

  TableParts& core_;
};

}  // namespace msrec
