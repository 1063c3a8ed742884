// SPDX-License-Identifier: Apache-2.0
//
// QuantisedPart: the operations of a table whose rows are int8 or int4. QuantisedPart is a part of
// a table; the caller must hold the table's mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "policy/eviction.h"
#include "readers/quantised_rows.h"
#include "rows/bags.h"
#include "rows/batch.h"
#include "rows/exported_rows.h"
#include "table/table_parts.h"

namespace msrec {

class QuantisedPart {
 public:
  // Requires: core outlives this object.
  explicit QuantisedPart(TableParts* core) : core_(*core) {}

  // Throw std::invalid_argument with `what` in the message if rows are quantised.
  void Refuse(const char* what) const;
  // Number of bytes of metadata in a row, for rows of any type.
  size_t MetadataBytes() const;
  // Return the current age limits of rows.
  AgeLimit Ages() const;
  // Give initial values to all rows of a table with a vocabulary.
  void WriteFirstRows(QuantisedRows* rows) const;

  // ---- requires quantised rows

  // If `bags` is null, rows are not pooled.
  void LookUp(const IdView& ids, const IdFilter& filter, const BagView* bags, const float* unknown,
              const RowsOut& out) const;
  ExportedRows Export(const IdView& keys, bool with_state) const;
  // Call fn with all rows, one part at a time.
  void ExportParts(bool with_state, const std::function<void(ExportedRows)>& fn) const;
  // Quantise values and store the rows. If an array in `ages` is null, the elements of the array
  // are assumed to be 0.
  void Put(const IdView& keys, const float* values, const RowArrays& ages);
  // Set rows that are already quantised; see TableQuantised::ImportCodes.
  void PutCodes(const IdView& keys, const uint8_t* rows, size_t width, const RowArrays& ages);

 private:
  TableParts& core_;
};

}  // namespace msrec
