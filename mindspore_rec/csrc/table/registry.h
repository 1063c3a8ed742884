// SPDX-License-Identifier: Apache-2.0
//
// Tables by number: how MindSpore's operators, which get tensors only, name the table they work on.
// A number is never reused, so a graph that outlives its table gets an error and not another table.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "table/table.h"

namespace msrec {

// What the operators did on a table since it was made: shown by the placement report.
enum class OpKind : int { kLookup = 0, kAccumulate, kStep, kMap, kCount };

struct OpTimes {
  std::array<std::atomic<uint64_t>, static_cast<int>(OpKind::kCount)> calls{};
  std::array<std::atomic<uint64_t>, static_cast<int>(OpKind::kCount)> nanoseconds{};
};

struct Registered {
  int64_t id = 0;
  std::shared_ptr<Table> table;
  OpTimes times;
};

// Makes a table. Throws std::invalid_argument where the name is empty or that of an open table. Any
// thread. In a forked child the parent's tables are not open.
std::shared_ptr<Registered> CreateTable(const TableConfig& config);

// Throws TableClosed where that table was closed, ForkedProcess where it is the parent's of this
// forked child, std::invalid_argument where there never was one.
std::shared_ptr<Registered> FindTable(int64_t id);

// Closes the table and frees its rows and name; returns when it is closed, by whichever thread.
// Inside a call on a table, or in a thread of one, it only has it closed. A forked child leaves its
// parent's tables as they are.
void CloseTable(int64_t id);

}  // namespace msrec
