// SPDX-License-Identifier: Apache-2.0
//
// BagPooling: combines the rows of a lookup by bags. BagPooling is a part of a table and runs under
// the table's mutex.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rows/bags.h"
#include "rows/batch.h"
#include "table/core/table_core.h"

namespace msrec {

class BagPooling {
 public:
  // Requires: core outlives it.
  explicit BagPooling(const TableCore* core) : core_(*core) {}
  // Combines rows with the number types of the kernels `rows`, not with the table's types.
  BagPooling(const TableCore* core, const RowKernels* rows) : core_(*core), rows_(rows) {}

  // Throw std::invalid_argument unless offsets rise from 0 to at most the number of ids.
  void Check(const IdView& ids, const BagView& bags) const;
  // Allocate the memory for Pool, before the lookup changes anything. Throws std::bad_alloc.
  void Reserve(Batch* batch, const BagView& bags);
  // Combine the rows of each bag into out [number of bags, dim], and store in the batch the bag and
  // weight of each gradient. Keys without a row read `unknown`. Requires batch->row and Reserve.
  void Pool(Batch* batch, const IdView& ids, const BagView& bags, const float* unknown, float* out);

 private:
  void PoolBag(Batch* batch, size_t bag, size_t first, size_t last, const BagView& bags,
               const float* unknown, float* out);

  const TableCore& core_;
  const RowKernels* const rows_ = nullptr;  // null: the kernels of the table's rows
  Buffer<uint32_t> row_of_pos_;             // by position of the lookup
};

}  // namespace msrec
