// SPDX-License-Identifier: Apache-2.0
//
// LookupExchange: the lookups of one operation over workers. Keys go to their owners and rows come
// back (lookup_messages.cc); before it the batches are planned, and after it rows are expanded to
// positions or bags (lookup_exchange.cc). Internal to those files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "table/table_tasks.h"
#include "workers/collective.h"
#include "workers/sharded_table.h"

namespace msrec {

class LookupExchange {
 public:
  // Requires: what LookUpOverWorkers does; the requests outlive it.
  LookupExchange(std::vector<LookupRequest>* requests, bool train);

  // Do the lookups. Throws on all workers where one fails.
  void Run();

 private:
  // Free floats in front of rows, for a row's metadata. A cache line, so that rows begin with one.
  static constexpr size_t kLineFloats = 16;

  struct One {
    LookupRequest* request = nullptr;
    bool trained = false;
    std::unique_ptr<KeptLookup> kept;
    std::unique_ptr<BagPooling> pooling;
    IdView ids;  // empty if this worker is idle

    ShardedTable& table() const { return *request->table; }
    Table& here() const { return request->table->table(); }
    size_t dim() const { return static_cast<size_t>(here().dim()); }
    bool replicated() const { return table().placement().replicated(); }
    // Number of keys that this worker sends to r.
    size_t sent(int r) const { return kept->keys.count(replicated() ? 0 : r); }
    // The rows of the keys that this worker owns.
    float* rows() const { return kept->rows.data() + kLineFloats; }
  };

  void Plan(One* one);
  // Write the keys of all lookups to memory().send; return the bytes for each worker.
  std::vector<size_t> WriteKeys();
  void ReadKeys();
  void LookUpHere();
  void ForgetHere();
  void ReturnRows();
  void ReturnHandles();
  void Expand(One* one, size_t index);

  std::vector<LookupRequest>& requests_;
  const bool train_;
  Collective all_;
  std::vector<One> lookups_;
  TableTasks<ShardedTable*> tasks_;
  std::vector<float*> rows_;  // the first row, by lookup and worker
};

}  // namespace msrec
