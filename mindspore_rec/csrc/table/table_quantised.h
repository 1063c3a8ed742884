// SPDX-License-Identifier: Apache-2.0
//
// TableQuantised: the methods for rows of int8 and int4 (readers/quantised_rows.h). A table may
// have rows of int8 or int4 instead of trainable rows. Any thread may call the methods of
// TableQuantised; the methods lock the table's mutex and throw the same exceptions as Table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rows/batch.h"
#include "table/table_engine.h"

namespace msrec {

class TableQuantised {
 public:
  // Requires: engine outlives this object.
  explicit TableQuantised(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  // From now on, store rows with 8 or 4 bits per number; rows are quantised when they are put or
  // imported. Quantised rows are looked up, put, imported, erased and exported like other rows.
  // Quantised rows have no optimizer, and lookups do not insert quantised rows. Rows of a static
  // table get their initial values. Requires: the table has no rows yet, no optimizer, no tiers, no
  // device cache and no recorded changes, and there is only one worker.
  void Quantise(int32_t bits);
  // Set rows that are already quantised. The rows are set in parts of 2^18 keys; if memory runs
  // out, the completed parts stay set. Each row has `width` bytes: scale, offset and codes
  // (quantised_row.h). `width` must equal the width of the table's int8 or int4 rows. If an array
  // in `ages` is null, the elements of the array are assumed to be 0.
  void ImportCodes(const IdView& keys, const uint8_t* rows, size_t width, const RowArrays& ages);
  // Bits per number: 8 or 4; 0 if rows are not quantised.
  int32_t bits();

 private:
  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
