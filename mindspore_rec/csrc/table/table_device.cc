// SPDX-License-Identifier: Apache-2.0
//
#include "table/table_device.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "table/table_guard.h"

namespace msrec {

void TableDevice::Attach(const DeviceConfig& config, float* values) {
  TableGuard::Run(&core_, [&] {
    engine_.quantised.Refuse("a device cache");
    if (core_.context.placement.workers > 1) {
      throw std::invalid_argument(
          core_.Where("device_rows must be None with more than one worker, got " +
                      std::to_string(core_.context.placement.workers) + " workers"));
    }
    engine_.device_cache = std::make_unique<DeviceCache>(&core_, &engine_.lookup, config, values);
    core_.device = core_.context.device = engine_.device_cache->rows();
  });
}

DeviceCache& TableDevice::Cache() const {
  if (engine_.device_cache == nullptr)
    throw std::invalid_argument(core_.Where("has no device cache"));
  return *engine_.device_cache;
}

DeviceCache& TableDevice::Cache(bool shared) const {
  Cache().RequireShared(shared);
  return *engine_.device_cache;
}

void TableDevice::SetStates(float* states) {
  TableGuard::Run(&core_, [&] { Cache(true).SetStates(states); });
}

int32_t TableDevice::state_width() {
  return TableGuard::Run(&core_, [&] { return core_.context.rule.StateWidth(core_.config.dim); });
}

int64_t TableDevice::LookupSlots(const IdView& ids, const IdFilter& filter, float* values,
                                 int32_t* slots) {
  return TableGuard::Run(&core_, [&] { return Cache().Lookup(ids, filter, values, slots); });
}

RowMoves TableDevice::Prepare(const IdView& ids, const IdFilter& filter) {
  return TableGuard::Run(&core_, [&] { return Cache().Prepare(ids, filter); });
}

RowMoves TableDevice::FetchDirty() {
  return TableGuard::Run(&core_, [&] { return Cache().FetchDirty(); });
}

void TableDevice::FinishMove(const float* out_values, size_t values, const float* out_states,
                             size_t states) {
  TableGuard::Run(&core_, [&] { Cache().FinishMove(out_values, values, out_states, states); });
}

void TableDevice::ReportGradient(int64_t ticket) {
  TableGuard::Run(&core_, [&] { Cache().ReportGradient(ticket); });
}

size_t TableDevice::CountTouched() {
  return TableGuard::Run(&core_, [&] { return Cache(false).touched(); });
}

void TableDevice::Touched(int32_t* slots, size_t room) {
  TableGuard::Run(&core_, [&] { Cache(false).CopyTouched(slots, room); });
}

std::array<float, 2> TableDevice::BeginStep(const StepInput& input) {
  return TableGuard::Run(&core_, [&] {
    const DeviceCache& device = Cache(false);
    core_.RequireOptimizer();
    const StepConstants c = engine_.optimizer.Constants(input);
    device.RequireNonePrepared();
    return std::array<float, 2>{c.adam_lr, c.adam_eps};
  });
}

void TableDevice::FinishStep() {
  TableGuard::Run(&core_, [&] {
    Cache(false).NoteUpdated();
    engine_.FinishStep();
  });
}

}  // namespace msrec
