// SPDX-License-Identifier: Apache-2.0
//
// TableAdmission: the methods that set the admission threshold, and that return and set the counts
// of keys without rows. Any thread may call the methods of TableAdmission; the methods lock the
// table's mutex and throw the same exceptions as Table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rows/row_layout.h"
#include "table/table_engine.h"

namespace msrec {

class TableAdmission {
 public:
  // Requires: engine outlives this object.
  explicit TableAdmission(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  void SetThreshold(int64_t threshold);
  // Return the counts of keys without rows: ExportCounters returns exact counters, and ExportSketch
  // returns the bytes of the sketch.
  std::vector<RowMeta> ExportCounters();
  std::vector<char> ExportSketch();
  // Set counters. If memory runs out, some counters may already be set. Keys with a row are
  // skipped. ImportCounters throws if the table keeps no exact counters. ImportSketch throws if the
  // size of the sketch does not match.
  void ImportCounters(const std::vector<RowMeta>& counters);
  void ImportSketch(const char* data, size_t bytes);

 private:
  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
