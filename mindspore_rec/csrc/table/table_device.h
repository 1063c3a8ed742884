// SPDX-License-Identifier: Apache-2.0
//
// TableDevice: the calls on a table's device cache (table/device_cache.h). As Table: from any
// thread, under the table's mutex, with its exceptions. Those for a cache that the table does not
// have throw std::invalid_argument.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "table/table_engine.h"

namespace msrec {

class TableDevice {
 public:
  // Requires: engine outlives it.
  explicit TableDevice(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  // Gives the table a device cache. `values` is [rows + 3, dim]; null where it is not shared.
  void Attach(const DeviceConfig& config, float* values);
  // The states' matrix, after BindOptimizer; null where it is not shared.
  void SetStates(float* states);
  // Numbers of a row's state in that matrix.
  int32_t state_width();
  // Like Table::LookupTrain, but gives the slot of each id's row in the cache, where all of them
  // are then. Those that Prepare has mapped for the same ids are given out as they are; without
  // shared memory there must be such. `values`: where the cache is by now; null for where it was.
  int64_t LookupSlots(const IdView& ids, const IdFilter& filter, float* values, int32_t* slots);
  // Does that lookup's work on the host ahead of it. Without shared memory the caller then moves
  // the rows and says so by FinishMove before it does anything else with the table.
  RowMoves Prepare(const IdView& ids, const IdFilter& filter);
  // Returns the changed rows on the device, which the caller fetches and passes to FinishMove. With
  // shared memory it writes them back by itself and returns nothing.
  RowMoves FetchDirty();
  // values, states: how many numbers there are; throws std::invalid_argument, and nothing is taken
  // over, unless they belong to the rows being moved.
  void FinishMove(const float* out_values, size_t values, const float* out_states, size_t states);
  // Slots whose rows have a gradient; without shared memory.
  size_t CountTouched();
  void Touched(int32_t* slots, size_t room);
  // The gradient of the lookup with that ticket has been added on the device.
  void ReportGradient(int64_t ticket);
  // Returns adam_lr and adam_eps, which the step's formula needs besides the rule's constants.
  std::array<float, 2> BeginStep(const StepInput& input);
  // The touched rows have been updated on the device.
  void FinishStep();

 private:
  // Throw where there is no device cache, or one whose memory is not shared, or is.
  DeviceCache& Cache() const;
  DeviceCache& Cache(bool shared) const;

  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
