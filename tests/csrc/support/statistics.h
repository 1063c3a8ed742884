// SPDX-License-Identifier: Apache-2.0
//
// A table's statistics as the pairs of name and number that users see.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "table/table_stats.h"

namespace msrec {

inline double Number(int64_t n) { return static_cast<double>(n); }
inline double Number(double ratio) { return ratio; }
inline double Number(Bytes bytes) { return static_cast<double>(bytes.count); }
inline double Number(Seconds seconds) { return seconds.count(); }

inline std::vector<std::pair<std::string, double>> Named(const TableStats& stats) {
  std::vector<std::pair<std::string, double>> named;
  ForEachStatistic(
      stats, [&](const std::string& name, auto value) { named.emplace_back(name, Number(value)); });
  return named;
}

}  // namespace msrec
