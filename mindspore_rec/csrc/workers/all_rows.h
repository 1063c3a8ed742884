// SPDX-License-Identifier: Apache-2.0
//
// AllRows: the rows of a table on all workers, read and changed by a single worker. AllRows
// accesses this worker's rows directly, and the rows of another worker through that worker's
// RowService. Only one worker calls the methods; at the same time, the other workers may do other
// work.
//
// If a table is replicated, AllRows reads only this worker's rows, which are complete, but changes
// the rows of all workers. If a call fails on another worker, the message names that worker; some
// workers may already have completed the call.
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
  // Requires: table and group outlive this object; the table's placement matches the group.
  AllRows(Table* table, WorkerGroup* group) : table_(*table), group_(*group) {}

  // Does the same as Table::Get; `out` is [ids.size, dim].
  void Get(const IdView& ids, const IdFilter& filter, bool insert, float* out);
  void Put(const IdView& ids, const float* values, size_t value_rows);
  void Import(const IdView& ids, const float* values);
  size_t Erase(const IdView& ids);
  void Contains(const IdView& ids, bool* out);
  size_t Size();
  // Keys and rows are sorted by worker.
  std::vector<int64_t> Keys();
  ExportedRows Export(bool with_state);
  ExportedRows ExportKeys(const IdView& keys, bool with_state);
  Explanation Explain(int64_t key);

 private:
  // The ids that are sent to one worker.
  struct Part {
    std::vector<int64_t> keys;
    std::vector<size_t> at;  // place of each among the caller's ids
  };

  const Placement& placement() const { return table_.placement(); }
  bool Mine(int worker) const { return worker == group_.rank(); }
  // Return the ids, grouped by the worker that owns the ids' rows. Ids that the filter drops are
  // assigned to this worker, which handles dropped ids.
  std::vector<Part> ByOwner(const IdView& ids, const IdFilter& filter) const;
  // Return the ids, grouped by the worker that must change the ids' rows.
  std::vector<Part> ByChanged(const IdView& ids, const IdFilter& filter) const;
  // Return the rows of a part's ids, copied from `values` [ids.size, dim], which has one row per
  // id.
  std::vector<float> Gather(const Part& part, const float* values) const;

  // Call fn(rows) with the rows of a worker: this worker's Table, or RemoteRows for another worker.
  template <typename Fn>
  void OnWorker(int worker, const Fn& fn);
  // Call fn(worker, part, rows) for each part that has keys; `rows` is the Table or RemoteRows of
  // the part's worker.
  template <typename Fn>
  void ForParts(const std::vector<Part>& parts, const Fn& fn);
  // Call fn(rows) with the rows of each worker. If the table is replicated, call fn only with this
  // worker's rows.
  template <typename Fn>
  void ForReaders(const Fn& fn);

  Table& table_;
  WorkerGroup& group_;
};

// If there are several workers, call fn with the rows of all workers. If this is the only worker,
// call fn with the table itself. The other workers need not call ByRequests.
template <typename Fn>
auto ByRequests(const Registered& registered, const Fn& fn) {
  if (registered.over_workers == nullptr) return fn(*registered.table);
  AllRows all(registered.table.get(), registered.over_workers->exchange().group);
  return fn(all);
}

}  // namespace msrec
