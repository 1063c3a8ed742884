// SPDX-License-Identifier: Apache-2.0
//
// LookupExchange: the lookups of one operation over workers. Keys are sent to their owners, and the
// owners return the rows (lookup_messages.cc). Before the exchange, the batches are planned; after
// the exchange, rows are copied to the positions of their ids, or combined to bags
// (lookup_exchange.cc). Each worker prepares the lookups of the rows that it owns. If an owner
// fails to prepare a lookup, no lookup is done. This header is internal to lookup_exchange.cc and
// lookup_messages.cc.
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
  // Has the same requirements as LookUpOverWorkers. The requests must outlive this object.
  LookupExchange(LookupRequest* requests, size_t n, bool train);

  // Do the lookups. Throws on all workers if one worker fails.
  void Run();

 private:
  // Number of free bytes before the rows of a message. These bytes leave space for the metadata of
  // a row. The free bytes fill a cache line, so the rows begin at a cache line's start.
  static constexpr size_t kLine = 64;

  struct One {
    LookupRequest* request = nullptr;
    bool trained = false;
    std::unique_ptr<KeptLookup> kept;
    ShardedTable::Kept::node_type place;        // where it is kept
    std::shared_ptr<PreparedLookups> prepared;  // of its table's trained lookups, here
    std::unique_ptr<BagPooling> pooling;
    IdView ids;  // empty if this worker is idle

    ShardedTable& table() const { return *request->table; }
    Table& here() const { return request->table->table(); }
    size_t dim() const { return static_cast<size_t>(here().dim()); }
    bool replicated() const { return table().placement().replicated(); }
    // Number of keys that this worker sends to worker r.
    size_t sent(int r) const { return kept->keys.count(replicated() ? 0 : r); }
    // The type of the numbers in a row, when the row is sent in a message. Rows of a replicated
    // table are sent as float32, the type of the lookup's output. Rows of a table that is not
    // replicated are sent in the table's own type, without rounding.
    NumberType type() const {
      return replicated() ? NumberType::kFloat32 : here().config().precision.value;
    }
    size_t row_bytes() const { return dim() * BytesOf(type()); }
    // The rows of the keys that this worker owns. The lookup writes float32 numbers, which are then
    // converted to type() in place.
    float* rows() const { return kept->rows.data() + kLine / sizeof(float); }
  };

  // The steps of a lookup, in order. The steps up to PlanReturn may fail; the later steps change
  // tables and need no memory.
  void AddLookups();
  void Plan(One* one);
  // Write the keys of all lookups to memory().send, and the number of bytes for each worker to
  // send_bytes().
  void WriteKeys();
  void ReadKeys();
  void MakeRoom();
  void PrepareHere(One* one);
  void PlanReturn();
  void FinishHere(One* one);
  // Return the size of a message with `rows` rows of a lookup.
  size_t MessageBytes(const One& one, size_t rows) const;
  void ReturnRows();
  void ReturnHandles();
  void Expand(One* one, size_t index);

  bool by_handle() const { return requests_[0].handles != nullptr; }

  LookupRequest* const requests_;
  const size_t size_;
  const bool train_;
  Collective all_;
  std::vector<One> lookups_;
  TableTasks<ShardedTable*> tasks_;
  // Working memory for sending rows back to the workers that requested them.
  std::vector<char*> rows_;              // the first row, by lookup and worker
  std::vector<const One*> travelling_;   // lookups whose rows come from other workers
  std::vector<const char*> next_rows_;   // by such lookup: the row to copy next
  std::vector<size_t> sent_, received_;  // bytes, by worker
  std::vector<size_t> handles_sent_, handles_received_;
};

}  // namespace msrec
