// SPDX-License-Identifier: Apache-2.0
//
// TableQuantised: the calls on rows of int8 and int4 (readers/quantised_rows.h), which a table may
// have in place of rows that can be trained. As Table: from any thread, under the table's mutex,
// with its exceptions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rows/batch.h"
#include "table/table_engine.h"

namespace msrec {

class TableQuantised {
 public:
  // Requires: engine outlives it.
  explicit TableQuantised(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  // Keep rows with 8 or 4 bits a number from now on: they are quantised as they are put or
  // imported. Such rows are looked up, put, imported, erased and exported as others; they have no
  // optimizer and are not inserted by lookups. Rows of a static table become first values.
  // Requires: the table has no rows otherwise, no optimizer, no tiers, no device cache, and is not
  // over workers.
  void Quantise(int32_t bits);
  // Set rows that are quantised already: of each `width` bytes of scale, offset and codes
  // (quantised_row.h), as many as the table's rows have, which are of int8 or int4. Null columns of
  // `ages` are zeros.
  void ImportCodes(const IdView& keys, const uint8_t* rows, size_t width, const RowArrays& ages);
  // 8 or 4; 0 where rows are not quantised.
  int32_t bits();

 private:
  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
