// SPDX-License-Identifier: Apache-2.0
//
// DeviceCache: lookups and steps of a table whose rows are in the slots of a device cache
// (device_rows.h) during training. A slot is a row's place in the cache.
//
// If the host can access the cache's memory, DeviceCache moves the rows. If the host cannot access
// the cache's memory, the caller moves rows (RowMoves, FinishMove), and the optimizer's formula
// runs on the device. The graph then reports which lookups have a gradient, requests the slots of
// the rows with a gradient, and updates the rows in these slots.
//
// DeviceCache is a part of Table; the caller must hold the table's mutex. Throws
// std::invalid_argument for bad arguments, and std::runtime_error if calls are in a wrong order.
// After an exception, the table is unchanged. Messages name the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <vector>

#include "rows/kernels.h"
#include "table/batch_lookup.h"
#include "table/core/table_core.h"
#include "table/device/device_rows.h"
#include "table/table_stats.h"
#include "util/buffer.h"

namespace msrec {

// Rows that the caller must move. First, the rows in out_slots move from the device to the host.
// Then, in_values [n, dim] and in_states [n, state width] move from the host to in_slots [n].
struct RowMoves {
  std::vector<int32_t> out_slots;
  std::vector<int32_t> in_slots;
  std::vector<float> in_values;
  std::vector<float> in_states;
};

class DeviceCache {
 public:
  // `values` is [rows + 3, dim] and belongs to the caller; `values` is null if the host cannot
  // access the cache's memory. `lookup` finds rows on the host. Requires: core and lookup outlive
  // this object.
  DeviceCache(TableCore* core, BatchLookup* lookup, const DeviceConfig& config, float* values);

  DeviceRows* rows() { return &rows_; }
  // Sets the address of the matrix of states [rows + 3, state width]; the address is null if the
  // host cannot access the cache's memory.
  void SetStates(float* states);
  // `shared` must be true if the host can access the cache's memory, and false if not. Throws
  // std::invalid_argument otherwise.
  void RequireShared(bool shared) const;
  DeviceStats Stats() const;

  // ---- lookups that return slots

  // Inserts missing rows, and counts and touches all rows, as a training lookup does. Writes the
  // slot of each id's row to `slots` [ids.size] and returns the lookup's ticket. If Prepare was
  // called for these ids before, the result of Prepare is used. If the host cannot access the
  // cache's memory, Prepare must have been called. `values` is the cache's current address, or null
  // if this address has not changed.
  int64_t Lookup(const IdView& ids, const IdFilter& filter, float* values, int32_t* slots);
  // Executes the host's part of a later Lookup in advance. If the host cannot access the cache's
  // memory, the caller must move the rows and call FinishMove before any other call on the table.
  // If the table is not trained, lookups that are prepared together keep their slots until each has
  // been completed by Lookup.
  RowMoves Prepare(const IdView& ids, const IdFilter& filter);
  // Throws if a lookup was prepared but not completed.
  void RequireNonePrepared() const;

  // ---- lookups that read rows on the host

  // Makes the batch's keys unique, and reserves memory for `swaps`, before any row changes. Throws
  // if the batch's keys do not fit into the cache together with the keys of the step's earlier
  // lookups.
  void RequireSlots(Batch* batch, bool trained, std::vector<SlotSwap>* swaps);
  // Assigns slots to the rows of the batch, for this step and for later lookups. Cannot fail.
  void Place(const Batch& batch, std::vector<SlotSwap>* swaps);

  // ---- moves

  // Returns the rows that FinishMove must store, because their newest values are only on the
  // device. If the host can access the cache's memory, FetchDirty writes the changed rows back
  // itself and returns no rows.
  RowMoves FetchDirty();
  // Stores in host memory the rows that the caller has fetched from the device. `values` and
  // `states` are the sizes of the arrays `out_values` and `out_states`. If the sizes do not match
  // the number of fetched rows, throws and stores nothing.
  void FinishMove(const float* out_values, size_t values, const float* out_states, size_t states);

  // ---- the step on the host, with shared memory

  // Reserves memory to record the rows that a step updates. Throws std::bad_alloc.
  void ReserveStep(size_t rows);
  // Updates the shard's rows that have a slot, and removes the updated rows from the shard's
  // gradients.
  void UpdateRows(const StepConstants& constants, int shard);

  // ---- the step on the device, without shared memory

  // Records that the gradient of lookup `ticket` has been added on the device.
  void ReportGradient(int64_t ticket);
  // Number of slots whose rows have a gradient.
  size_t touched() const { return touched_.size(); }
  // Writes the touched slots to the beginning of `slots` [room], and fills the rest with the
  // scratch slot. Throws std::runtime_error if there are more than `room` touched slots.
  void CopyTouched(int32_t* slots, size_t room) const;
  // Records that the touched rows have been updated on the device.
  void NoteUpdated();

  // Drops the step's lookups and gradients. After ForgetStep, new keys may replace the keys that
  // the step has used.
  void ForgetStep();

 private:
  struct PreparedLookup {
    std::vector<char> ids;
    bool is_int64 = true;
    IdFilter filter;
    std::vector<int32_t> slots;
    int64_t ticket = 0;

    bool IsFor(const IdView& other, const IdFilter& other_filter) const;
  };

  int64_t MapToSlots(const IdView& ids, const IdFilter& filter, int32_t* slots,
                     std::vector<SlotSwap>* swaps, std::vector<uint32_t>* held);

  TableCore& core_;
  BatchLookup& lookup_;
  DeviceRows rows_;
  std::list<PreparedLookup> prepared_;
  Buffer<uint32_t> slot_of_key_;                              // of a batch, laid out as batch.key
  Buffer<float*> value_of_row_, state_of_row_;                // of a step on the host
  std::map<int64_t, std::vector<uint32_t>> slots_of_lookup_;  // by ticket, without shared memory
  std::vector<uint32_t> touched_;                             // distinct slots
  std::vector<uint8_t> is_touched_;                           // by slot
};

}  // namespace msrec
