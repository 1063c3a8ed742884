// SPDX-License-Identifier: Apache-2.0
//
// DeviceCache: lookups and steps of a table whose rows are, while they are trained, in the slots of
// a device cache (device_rows.h). A slot is a row's place there.
//
// If the host shares the cache's memory, the cache moves rows by itself. Otherwise the caller moves
// them (RowMoves, FinishMove), and the optimizer's formula runs on the device too: the graph
// reports which lookups have a gradient, asks for the slots of their rows and updates these.
//
// A part of Table, under its mutex. Throws std::invalid_argument for bad arguments and
// std::runtime_error for calls out of order, with the table as it was; messages name the table.
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

// Rows that the caller is to move: rows in out_slots from the device to the host, then in_values
// [n, dim] and in_states [n, state width] into in_slots [n].
struct RowMoves {
  std::vector<int32_t> out_slots;
  std::vector<int32_t> in_slots;
  std::vector<float> in_values;
  std::vector<float> in_states;
};

class DeviceCache {
 public:
  // `values` is [rows + 3, dim], and stays the caller's; null where it is not shared. Requires that
  // core and lookup, which finds rows on the host, outlive it.
  DeviceCache(TableCore* core, BatchLookup* lookup, const DeviceConfig& config, float* values);

  DeviceRows* rows() { return &rows_; }
  // Sets the states' matrix [rows + 3, state width]; null where it is not shared.
  void SetStates(float* states);
  // Throws unless its memory is shared, or with `shared` false, unless it is not.
  void RequireShared(bool shared) const;
  DeviceStats Stats() const;

  // ---- lookups that give slots

  // Inserts, counts and touches as a training lookup, and writes the slot of each id's row to
  // `slots` [ids.size]; returns the lookup's ticket. What Prepare did for the same ids is given out
  // as it is; without shared memory there must be such. `values`: where the cache is by now, null
  // for where it was.
  int64_t Lookup(const IdView& ids, const IdFilter& filter, float* values, int32_t* slots);
  // Does that lookup's work on the host ahead of it. Without shared memory the caller moves the
  // rows and calls FinishMove before anything else on the table.
  RowMoves Prepare(const IdView& ids, const IdFilter& filter);
  // Throws where a prepared lookup has not been made.
  void RequireNonePrepared() const;

  // ---- lookups that read rows on the host

  // Makes a batch unique and room for `swaps`, before anything changes; throws if its keys do not
  // fit beside the keys of the step's earlier lookups.
  void RequireSlots(Batch* batch, bool trained, std::vector<SlotSwap>* swaps);
  // Gives the rows of that batch their slots, for the step and for lookups to come. Cannot fail.
  void Place(const Batch& batch, std::vector<SlotSwap>* swaps);

  // ---- moves

  // Returns the rows whose newest value is on the device only, to be handed to FinishMove. With
  // shared memory it writes them back by itself and returns nothing.
  RowMoves FetchDirty();
  // Takes over the rows being moved out. values, states: how many numbers there are; throws, and
  // nothing is taken over, unless these rows have as many.
  void FinishMove(const float* out_values, size_t values, const float* out_states, size_t states);

  // ---- the step on the host, with shared memory

  // Makes room for the rows of a step. Throws std::bad_alloc.
  void ReserveStep(size_t rows);
  // Updates the rows of a shard that have a slot, and takes them out of the shard's gradients.
  void UpdateRows(const StepConstants& constants, int shard);

  // ---- the step on the device, without shared memory

  // The gradient of the lookup with that ticket has been added on the device.
  void ReportGradient(int64_t ticket);
  // Number of slots whose rows have a gradient.
  size_t touched() const { return touched_.size(); }
  // Writes these slots to `slots` [room], and the scratch slot to the rest.
  void CopyTouched(int32_t* slots, size_t room) const;
  // The touched rows have been updated on the device: notes them as changed.
  void NoteUpdated();

  // Forgets the step's lookups and gradients; its slots may be taken from here on.
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
