// SPDX-License-Identifier: Apache-2.0
//
// All that can be seen of a table, to be compared before and after a call that failed.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "table/table.h"
#include "table_testing.h"
#include "testing.h"

namespace msrec {

struct TableState {
  size_t size = 0;
  std::vector<int64_t> keys;
  std::map<int64_t, ExportedRow> rows;
  std::map<int64_t, std::vector<uint32_t>> counters;
  std::vector<char> sketch;
  int64_t step = 0;
  uint32_t time = 0;

  // Reads the table in every way there is; adds what does not agree to `wrong`.
  static TableState Of(Table* table, std::string* wrong) {
    TableState state;
    const auto expect = [&](bool fine, const std::string& what) {
      if (!fine) *wrong += what + "; ";
    };
    try {
      state.size = table->Size();
      state.keys = table->Keys();
      std::sort(state.keys.begin(), state.keys.end());
      std::vector<int64_t> twice;
      state.rows = RowsByKey(table->Export(true), &twice);
      for (const int64_t key : twice) expect(false, "key " + std::to_string(key) + " comes twice");
      expect(state.size == state.rows.size(), "Size() is " + std::to_string(state.size) +
                                                  ", exported were " +
                                                  std::to_string(state.rows.size()));
      expect(state.keys.size() == state.rows.size(),
             "Keys() gives " + std::to_string(state.keys.size()));
      for (const int64_t key : state.keys) {
        expect(state.rows.count(key) != 0, "Keys() has " + std::to_string(key));
      }
      // The same rows as evaluation sees them.
      std::vector<float> seen(state.keys.size() * table->dim());
      table->LookupEval({state.keys.data(), state.keys.size(), true}, {}, seen.data());
      size_t next = 0;
      for (const auto& [key, row] : state.rows) {
        if (next + table->dim() > seen.size()) break;
        expect(SameBits(seen.data() + next, row.value.data(), row.value.size()),
               "evaluation reads another row of key " + std::to_string(key));
        next += table->dim();
      }
      for (const RowMeta& each : table->admission().ExportCounters()) {
        state.counters[each.key] = {each.count, each.last_step, each.last_time};
      }
      state.sketch = table->admission().ExportSketch();
      state.step = table->clock().step();
      state.time = table->clock().time();
    } catch (const std::exception& error) {
      expect(false, std::string("it cannot be read: ") + error.what());
    }
    return state;
  }

  bool operator==(const TableState& other) const { return Difference(other).empty(); }

  // In words; empty: none.
  std::string Difference(const TableState& other) const {
    std::string out;
    const auto note = [&](const std::string& what) {
      if (out.size() < 300) out += what + "; ";
    };
    if (size != other.size) note(std::to_string(size) + " rows, not " + std::to_string(other.size));
    for (const auto& [key, row] : rows) {
      const auto at = other.rows.find(key);
      if (at == other.rows.end()) {
        note("key " + std::to_string(key) + " is too many");
      } else if (!(row == at->second)) {
        note("key " + std::to_string(key) + " differs (count " + std::to_string(row.count) + ", " +
             std::to_string(at->second.count) + ", step " + std::to_string(row.last_step) + ", " +
             std::to_string(at->second.last_step) + ", value[0] " + std::to_string(row.value[0]) +
             ", " + std::to_string(at->second.value[0]) + ")");
      }
    }
    for (const auto& [key, row] : other.rows) {
      if (rows.count(key) == 0) note("key " + std::to_string(key) + " is missing");
    }
    if (counters != other.counters) note("counters differ");
    if (sketch != other.sketch) note("sketches differ");
    if (step != other.step)
      note("step " + std::to_string(step) + ", " + std::to_string(other.step));
    if (time != other.time) note("the time differs");
    return out;
  }
};

}  // namespace msrec
