// SPDX-License-Identifier: Apache-2.0
//
// Tables by number: MindSpore's operators receive only tensors, so an operator identifies its table
// by a number. The number of a closed table is never used again. The operators of a graph that
// outlives its table throw an error instead of using another table.
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

// Kinds of operators. For each kind of operator, OpTimes contains the number of calls for a table
// and the total time of these calls. The placement report uses OpTimes.
enum class OpKind : int { kLookup = 0, kAccumulate, kStep, kMap, kCount };

struct OpTimes {
  std::array<std::atomic<uint64_t>, static_cast<int>(OpKind::kCount)> calls{};
  std::array<std::atomic<uint64_t>, static_cast<int>(OpKind::kCount)> nanoseconds{};
};

struct Registered {
  int64_t id = 0;
  std::shared_ptr<Table> table;
  // The whole table, on all workers; `table` is this worker's part of the table. Null if there is
  // only this process.
  std::shared_ptr<ShardedTable> over_workers;
  // True if a newer table has the same name. The older table keeps its rows, and becomes usable
  // again after the newer table is closed.
  std::atomic<bool> replaced{false};
  OpTimes times;
  // True if the network's other weights were loaded from a source without this table's rows.
  // While rows_missing is true, operators that read rows throw an exception. rows_missing stays
  // true until the user declares which rows belong to the network's other weights.
  std::atomic<bool> rows_missing{false};
};

// Thrown if another open table already has the requested name.
struct NameTaken : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// Thrown if a newer table with the same name has replaced the table.
struct TableReplaced : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Creates a table. Throws std::invalid_argument if the name is empty, and NameTaken if an open
// table of the same scope has the name. If `replace` is true, a table is created even if another
// open table has the same name. While the new table is open, FindTable throws TableReplaced for the
// older table. Any thread may call CreateTable. In a forked child, the parent's tables are not
// open.
std::shared_ptr<Registered> CreateTable(const TableConfig& config, bool replace = false);

// Throws TableClosed if table `id` was closed, and TableReplaced if a newer table has the table's
// name. Throws ForkedProcess if the table belongs to the parent of this forked child, and throws
// std::invalid_argument if there never was a table `id`.
std::shared_ptr<Registered> FindTable(int64_t id);

// Returns the newest open table named `name` in scope 0; null if there is no such table.
std::shared_ptr<Table> FindTableByName(const std::string& name);

// Throws TableReplaced if a newer table has the name of `registered`.
void CheckNotReplaced(const Registered& registered);

// Throws std::runtime_error if registered.rows_missing is set. Without the table's saved rows, the
// table does not fit the network's other weights.
void CheckRowsGiven(const Registered& registered);

// Closes the table and frees its rows and name. If there are older tables with the same name, the
// newest of these older tables gets the name back. Does not return before this thread or another
// thread has closed the table. If the caller is inside a call on a table, or is a background
// thread, CloseTable returns at once, and a new thread closes the table. In a forked child, the
// parent's tables do not change.
void CloseTable(int64_t id);

}  // namespace msrec
