// SPDX-License-Identifier: Apache-2.0
//
// TableDevice: the methods for a table's device cache (table/device_cache.h). Any thread may call
// the methods of TableDevice; the methods lock the table's mutex and throw the same exceptions as
// Table. Methods that need the cache throw std::invalid_argument if the table has no cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "table/table_engine.h"

namespace msrec {

class TableDevice {
 public:
  // Requires: engine outlives this object.
  explicit TableDevice(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  // Creates the table's device cache. `values` is [rows + 3, dim], or null if the host cannot
  // access the cache's memory.
  void Attach(const DeviceConfig& config, float* values);
  // Sets the address of the matrix of states. Throws std::invalid_argument if the host cannot
  // access the cache's memory. Requires an earlier call of BindOptimizer.
  void SetStates(float* states);
  // Number of floats in a row of the states' matrix.
  int32_t state_width();
  // Does the same as Table::LookupTrain, but writes the cache slot of each id's row and not the row
  // itself. After the call, the rows of all ids are in the cache. If Prepare was called for these
  // ids before, the result of Prepare is used. If the host cannot access the cache's memory,
  // Prepare must have been called. `values` is the cache's current address, or null if this address
  // has not changed.
  int64_t LookupSlots(const IdView& ids, const IdFilter& filter, float* values, int32_t* slots);
  // Executes the host's part of a later LookupSlots in advance. If the host cannot access the
  // cache's memory, the caller of Prepare must move the returned rows and call FinishMove before
  // any other call on the table.
  RowMoves Prepare(const IdView& ids, const IdFilter& filter);
  // Returns which rows in device memory have changed. The caller copies these rows from the device
  // and passes the copies to FinishMove. If the host can access the cache's memory, FetchDirty
  // writes the changed rows back itself and returns no rows.
  RowMoves FetchDirty();
  // `values` and `states` are the sizes of the arrays `out_values` and `out_states`. If the sizes
  // do not match the number of fetched rows, throws std::invalid_argument and stores nothing.
  void FinishMove(const float* out_values, size_t values, const float* out_states, size_t states);
  // CountTouched returns the number of slots whose rows have a gradient. The method Touched writes
  // the slots of rows with a gradient to `slots`, and fills the rest of `slots` with the scratch
  // slot. Throws std::runtime_error if `room` is too small. Requires that the host cannot access
  // the cache's memory.
  size_t CountTouched();
  void Touched(int32_t* slots, size_t room);
  // Records that the gradient of lookup `ticket` has been added on the device.
  void ReportGradient(int64_t ticket);
  // Returns adam_lr and adam_eps, which the step's formula needs in addition to the rule's
  // constants.
  std::array<float, 2> BeginStep(const StepInput& input);
  // Records that the touched rows have been updated on the device.
  void FinishStep();

 private:
  // Throws if there is no device cache. `shared` states whether the host can access the cache's
  // memory; Cache throws if `shared` is wrong.
  DeviceCache& Cache() const;
  DeviceCache& Cache(bool shared) const;

  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
