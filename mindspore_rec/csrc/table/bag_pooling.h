// SPDX-License-Identifier: Apache-2.0
//
// BagPooling: combines the rows of each bag of a lookup. BagPooling is a part of a table; the
// caller must hold the table's mutex.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rows/bags.h"
#include "rows/batch.h"
#include "table/core/table_core.h"

namespace msrec {

class BagPooling {
 public:
  // Requires: core outlives this object.
  explicit BagPooling(const TableCore* core) : core_(*core) {}
  // Combines rows with the kernels `rows`. (By default, the table's number types determine the
  // kernels.)
  BagPooling(const TableCore* core, const RowKernels* rows) : core_(*core), rows_(rows) {}

  // Throw std::invalid_argument if BagError finds an error in the bags (rows/bags.h).
  void Check(const IdView& ids, const BagView& bags) const;
  // Allocate the memory that Pool needs. Reserve must be called before the lookup changes the
  // table. Throws std::bad_alloc.
  void Reserve(Batch* batch, const BagView& bags);
  // Combine the rows of each bag into out [number of bags, dim]. Store the bag and the weight of
  // each position in the batch, for the gradient. If a key has no row, the key's value is the array
  // `unknown`. Requires batch->row and Reserve.
  void Pool(Batch* batch, const IdView& ids, const BagView& bags, const float* unknown, float* out);

 private:
  void PoolBag(Batch* batch, size_t bag, size_t first, size_t last, const BagView& bags,
               const float* unknown, float* out);

  const TableCore& core_;
  const RowKernels* const rows_ = nullptr;  // null to use the kernels of the table's rows
  Buffer<uint32_t> row_of_pos_;             // indexed by position in the lookup
};

}  // namespace msrec
