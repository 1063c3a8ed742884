// SPDX-License-Identifier: Apache-2.0
//
// RemoteRows reads and changes the rows that one other worker owns. RemoteRows sends requests to
// the RowService of that worker. The methods match the methods of Table; ids must be int64 and
// contiguous.
#pragma once

#include <functional>
#include <vector>

#include "table/table.h"
#include "workers/group.h"
#include "workers/row_messages.h"

namespace msrec {

class RemoteRows {
 public:
  // Requires: `table` is this worker's part of the table; `table` and `group` outlive this object.
  RemoteRows(Table& table, WorkerGroup* group, int worker)
      : table_(table), group_(*group), worker_(worker) {}

  void Get(const IdView& ids, const IdFilter& filter, bool insert, float* out) const;
  void Put(const IdView& ids, const float* values, size_t value_rows) const;
  void Import(const IdView& ids, const float* values) const;
  size_t Erase(const IdView& ids) const;
  void Contains(const IdView& ids, bool* out) const;
  size_t Size() const;
  std::vector<int64_t> Keys() const;
  ExportedRows Export(bool with_state) const;
  ExportedRows ExportKeys(const IdView& keys, bool with_state) const;
  Explanation Explain(int64_t key) const;

 private:
  using Write = std::function<void(MessageWriter*)>;
  using Read = std::function<void(MessageReader*)>;

  // Send a request with the arguments that `write` adds, and call `read` with the reply. If the
  // request fails on the other worker, throws the error, with the other worker's number.
  void Ask(RowRequest what, const Write& write, const Read& read) const;

  // Throws std::runtime_error unless the other worker's rows have the same width as this worker's
  // rows.
  void CheckRows(const ExportedRows& rows, bool with_state) const;

  Table& table_;
  WorkerGroup& group_;
  const int worker_;
};

}  // namespace msrec
