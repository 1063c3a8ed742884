// SPDX-License-Identifier: Apache-2.0
//
// AllRows: the rows of a table on all workers, read and changed by any one of them. This worker's
// rows are reached directly, those of others through their RowService. Only one worker calls: the
// others may be at anything else.
//
// Of a replicated table this worker has all rows: it reads its own, and changes those of all
// workers. What fails on one worker may have been done on others, as messages say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "table/table.h"
#include "workers/group.h"
#include "workers/row_messages.h"

namespace msrec {

class AllRows {
 public:
  // Requires: table and group outlive it; the table's placement is that of the group.
  AllRows(Table* table, WorkerGroup* group) : table_(*table), group_(*group) {}

  // As Table::Get: out is [ids.size, dim].
  void Get(const IdView& ids, const IdFilter& filter, bool insert, float* out);
  void Put(const IdView& ids, const float* values, size_t value_rows);
  // Put rows with fresh optimizer state, as Table::Import without states.
  void Import(const IdView& ids, const float* values);
  size_t Erase(const IdView& ids);
  void Contains(const IdView& ids, bool* out);
  size_t Size();
  // Keys and rows come worker after worker.
  std::vector<int64_t> Keys();
  ExportedRows Export(bool with_state);
  ExportedRows ExportKeys(const IdView& keys, bool with_state);
  Explanation Explain(int64_t key);

 private:
  // The ids of one worker.
  struct Part {
    std::vector<int64_t> keys;
    std::vector<size_t> at;  // where each is among the caller's ids
  };

  const Placement& placement() const { return table_.placement(); }
  bool Mine(int worker) const { return worker == group_.rank(); }
  // Return the ids by owner; those that the filter drops are of this worker, which says so.
  std::vector<Part> ByOwner(const IdView& ids, const IdFilter& filter) const;
  // Workers that have rows to read: all, or this one of a replicated table.
  std::vector<int> Readers() const;
  // Workers that a change of ids goes to, each with its part.
  std::vector<Part> ByChanged(const IdView& ids) const;
  MessageWriter Begin(RowRequest what) const;
  // Ask a worker, and return its reply without the status.
  std::string Ask(int worker, RowRequest what, const std::string& arguments) const;

  Table& table_;
  WorkerGroup& group_;
};

// Return the rows of all workers of this process's group, or nothing where the table's rows are all
// here because there is no other worker.
std::optional<AllRows> RowsOverWorkers(Table* table);

}  // namespace msrec
