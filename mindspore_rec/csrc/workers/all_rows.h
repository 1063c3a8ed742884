// SPDX-License-Identifier: Apache-2.0
//
// AllRows: the rows of a table on all workers, read and changed by any one of them. This worker's
// rows are reached directly, other workers' rows through their RowService. Only one worker calls:
// the others may be at anything else.
//
// Of a replicated table this worker has all rows: it reads its own, and changes the rows of
// all workers. A call that fails on one worker, which the message names, may have been done on
// others.
#pragma once

#include <cstdint>
#include <vector>

#include "table/table.h"
#include "workers/group.h"
#include "workers/registry.h"
#include "workers/sharded_table.h"

namespace msrec {

class AllRows {
 public:
  // Requires: table and group outlive it; the table's placement is that of the group.
  AllRows(Table* table, WorkerGroup* group) : table_(*table), group_(*group) {}

  // As Table::Get: out is [ids.size, dim].
  void Get(const IdView& ids, const IdFilter& filter, bool insert, float* out);
  void Put(const IdView& ids, const float* values, size_t value_rows);
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
    std::vector<size_t> at;  // place of each among the caller's ids
  };

  const Placement& placement() const { return table_.placement(); }
  bool Mine(int worker) const { return worker == group_.rank(); }
  // Return the ids by owner; those that the filter drops are of this worker, which says so.
  std::vector<Part> ByOwner(const IdView& ids, const IdFilter& filter) const;
  // Return the ids by the worker that is to change their rows.
  std::vector<Part> ByChanged(const IdView& ids, const IdFilter& filter) const;
  // Return the rows of a part, of values [ids.size, dim].
  std::vector<float> Gather(const Part& part, const float* values) const;

  // Call fn(rows) with the rows of a worker: this one's Table, or RemoteRows.
  template <typename Fn>
  void OnWorker(int worker, const Fn& fn);
  // Call fn(worker, part, rows) for each part that has ids.
  template <typename Fn>
  void ForParts(const std::vector<Part>& parts, const Fn& fn);
  // Call fn(rows) with the rows of each worker; of a replicated table, with this worker's rows.
  template <typename Fn>
  void ForReaders(const Fn& fn);

  Table& table_;
  WorkerGroup& group_;
};

// Call fn with the rows of all workers where the table is over several, else with the table. Other
// workers need not call.
template <typename Fn>
auto ByRequests(const Registered& registered, const Fn& fn) {
  if (registered.over_workers == nullptr) return fn(*registered.table);
  AllRows all(registered.table.get(), registered.over_workers->exchange().group);
  return fn(all);
}

}  // namespace msrec
