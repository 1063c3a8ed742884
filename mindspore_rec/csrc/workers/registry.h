// SPDX-License-Identifier: Apache-2.0
//
// Tables by number: how MindSpore's operators, which get tensors only, name the table they work on.
// A number is never reused, so a graph that outlives its table gets an error and not another table.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "table/table.h"
#include "workers/sharded_table.h"

namespace msrec {

// Calls and times of the operators on a table since it was made: shown by the placement report.
enum class OpKind : int { kLookup = 0, kAccumulate, kStep, kMap, kCount };

struct OpTimes {
  std::array<std::atomic<uint64_t>, static_cast<int>(OpKind::kCount)> calls{};
  std::array<std::atomic<uint64_t>, static_cast<int>(OpKind::kCount)> nanoseconds{};
};

struct Registered {
  int64_t id = 0;
  std::shared_ptr<Table> table;
  // The table over all workers of which `table` is this worker's part; null: there is only this
  // process.
  std::shared_ptr<ShardedTable> over_workers;
  // A newer table has the name: this one keeps its rows, and is used again once that is closed.
  std::atomic<bool> replaced{false};
  OpTimes times;
  // The network's other weights were loaded from elsewhere without these rows: operators that read
  // rows refuse until somebody says which rows belong to them.
  std::atomic<bool> rows_missing{false};
};

// An open table has the name.
struct NameTaken : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// The table's name is that of a newer one.
struct TableReplaced : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Makes a table. Throws std::invalid_argument where the name is empty, NameTaken where an open
// table of the same scope has it; with `replace` the new table takes the name over instead, and
// FindTable refuses the older one until the new one is closed. Any thread. In a forked child the
// parent's tables are not open.
std::shared_ptr<Registered> CreateTable(const TableConfig& config, bool replace = false);

// Throws TableClosed where that table was closed, TableReplaced where a newer one has its name,
// ForkedProcess where it is the parent's of this forked child, std::invalid_argument where there
// never was one.
std::shared_ptr<Registered> FindTable(int64_t id);

// Returns the newest open table of that name, of the program's own scope; null if there is none.
std::shared_ptr<Table> FindTableByName(const std::string& name);

// Throws TableReplaced where a newer table has the name of this one.
void CheckNotReplaced(const Registered& registered);

// Throws std::runtime_error where rows_missing: what is read would not belong to the other weights.
void CheckRowsGiven(const Registered& registered);

// Closes the table and frees its rows and name; the newest of the older tables of that name, if
// there are any, has it again. Returns when it is closed, by whichever thread. Inside a call on a
// table, or in a thread of one, it only has it closed. A forked child leaves its parent's tables as
// they are.
void CloseTable(int64_t id);

}  // namespace msrec
