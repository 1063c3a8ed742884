// SPDX-License-Identifier: Apache-2.0
//
// TableAdmission: the calls on which keys get rows, and on what a table counts of keys without one.
// As Table: from any thread, under the table's mutex, with its exceptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rows/row_layout.h"
#include "table/table_engine.h"

namespace msrec {

class TableAdmission {
 public:
  // Requires: engine outlives it.
  explicit TableAdmission(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  void SetThreshold(int64_t threshold);
  // Return what is known of keys without rows: exact counters as metadata, or the sketch's memory.
  std::vector<RowMeta> ExportCounters();
  std::vector<char> ExportSketch();
  // Set counters, all at once or, where memory runs out, some of them. Keys with a row are
  // passed over. Throws where the table does not count so, or a sketch has another size.
  void ImportCounters(const std::vector<RowMeta>& counters);
  void ImportSketch(const char* data, size_t bytes);

 private:
  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
