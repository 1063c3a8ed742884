// SPDX-License-Identifier: Apache-2.0
//
// TableCore: the state that a table's parts share. The shared state consists of the configuration,
// the shards, and the lookups of the current step. The class Table owns the TableCore. The parts
// (BatchLookup, RowReader, RowOptimizer, Evictor, RowCache, DeviceCache) keep a reference to
// TableCore; callers of the parts must hold the table's mutex.
//
// Error messages begin with the table's name (Where). A method that checks arguments throws
// std::invalid_argument, unless the method's comment names another exception.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rows/batch.h"
#include "table/core/shard.h"
#include "table/core/step_lookups.h"
#include "table/core/table_config.h"
#include "table/core/table_mutex.h"
#include "table/device/device_rows.h"

namespace msrec {

struct TableCore {
  // Throws if the configuration is out of range. Throws OutOfMemory if the shards do not fit into
  // memory.
  explicit TableCore(const TableConfig& config);
  ~TableCore();
  TableCore(const TableCore&) = delete;
  TableCore& operator=(const TableCore&) = delete;

  // Return the message with the table's name prepended.
  std::string Where(const std::string& what) const {
    return "table '" + config.name + "': " + what;
  }

  int ShardNumber(int64_t key) const { return ShardOf(key, HashKey(key), context.identity()); }
  Shard& ShardFor(int64_t key) const { return *shards[ShardNumber(key)]; }
  // Whether this worker owns the row of a key.
  bool Owns(int64_t key) const { return context.placement.Owns(key); }
  // Return the number of keys whose rows this worker owns. Requires a static table.
  size_t OwnedVocabulary() const;
  // Number of rows inserted so far.
  uint64_t Inserted() const;
  // Number of rows in host memory.
  size_t Rows() const;
  // Return a version number that changes when a shard removes a row and when rows get another
  // layout. A pointer to a row may be stale if the version has changed since the pointer was read.
  uint64_t Structure() const;

  // Throw if an id is outside a static vocabulary and the table does not return zeros for such ids.
  void CheckIds(const IdView& ids, const IdFilter& filter) const;
  // Throw if a key is outside a static vocabulary.
  void CheckKeys(const IdView& keys, const char* argument) const;
  // Throw NoOptimizer if no optimizer is bound.
  void RequireOptimizer() const;
  // Throw if no optimizer is bound, or if rows are evicted by seconds and there is no event time
  // yet.
  void RequireTrainable() const;
  [[noreturn]] void RefuseWithoutTime() const;
  // Throw std::runtime_error if the newest value of a row is only in device memory that the host
  // cannot access.
  void RequireWrittenBack() const;
  // Throw std::invalid_argument; the message says that `what` is not possible with a device cache
  // outside host memory.
  [[noreturn]] void RefuseUnshared(const char* what) const;

  // Return the row layout that a rule requires.
  RowLayout LayoutFor(const Rule& rule) const;
  // Set the layout of rows. Requires: the shards' rows already have this layout, or Shard::Adopt is
  // called next, with rows in this layout.
  void TakeLayout(const RowLayout& layout);

  // Whether every shard keeps a digest. A shard that runs out of memory drops its digest.
  bool KeepsDigest() const;
  void DropDigest() noexcept;

  // Reserve memory for `keys` in the change log. If `all` is true, also reserve memory for the keys
  // of all rows in host memory and for all keys of the vocabulary. Throws std::bad_alloc.
  void ReserveChanges(const std::vector<int64_t>& keys, bool all);

  TableConfig config;
  ShardContext context;
  TableMutex mutex;
  bool closed = false;  // if true, every call except Close throws TableClosed
  std::vector<std::unique_ptr<Shard>> shards;
  std::atomic<bool> has_optimizer{false};
  bool trainable = true;  // if false, a training lookup is the same as a lookup in evaluation
  std::vector<float> unknown_row;          // value of unknown keys in training
  std::vector<float> serving_unknown_row;  // value of unknown keys in evaluation
  mutable int64_t owned_vocabulary = -1;   // -1 before the first count
  uint64_t relayouts = 0;                  // number of changes of the rows' layout
  uint64_t epoch = 0;                      // number of the current epoch; never reused
  uint64_t oldest_mark = 0;  // the oldest epoch with recorded changes, or 0 if no changes are
                             // recorded
  StepLookups lookups{this};
  DeviceRows* device = nullptr;  // rows of the device cache, or null without a device cache
};

}  // namespace msrec
