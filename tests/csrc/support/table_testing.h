// SPDX-License-Identifier: Apache-2.0
//
// Shorthands for tests of tables: ids, settings, and exported rows by key.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "table/table.h"
#include "testing.h"

namespace msrec {

inline IdView View(const std::vector<int64_t>& ids) { return {ids.data(), ids.size(), true}; }

// First values are normal with standard deviation 0.1.
inline TableConfig NormalConfig(const std::string& name, int dim = 4) {
  TableConfig config;
  config.name = name;
  config.dim = dim;
  config.initializer.kind = InitKind::kNormal;
  config.initializer.b = 0.1f;
  return config;
}

inline Rule RuleOf(RuleKind kind) {
  Rule rule;
  rule.kind = kind;
  return rule;
}

struct ExportedRow {
  std::vector<float> value, state;
  uint32_t count = 0, last_step = 0, last_time = 0;

  bool operator==(const ExportedRow& other) const {
    return SameBits(value, other.value) && SameBits(state, other.state) && count == other.count &&
           last_step == other.last_step && last_time == other.last_time;
  }
};

inline ExportedRow RowAt(const ExportedRows& rows, size_t i) {
  const float* value = rows.values.get() + i * rows.dim;
  const float* state = rows.states.get() + i * rows.state_width;
  return {{value, value + rows.dim},
          {state, state + rows.state_width},
          rows.counts[i],
          rows.last_steps[i],
          rows.last_times[i]};
}

// Adds to `twice` the keys that were exported more than once.
inline std::map<int64_t, ExportedRow> RowsByKey(const ExportedRows& rows,
                                                std::vector<int64_t>* twice) {
  std::map<int64_t, ExportedRow> found;
  for (size_t i = 0; i < rows.n; ++i) {
    if (!found.emplace(rows.keys[i], RowAt(rows, i)).second) twice->push_back(rows.keys[i]);
  }
  return found;
}

}  // namespace msrec
