// SPDX-License-Identifier: Apache-2.0
//
// Table: its device cache.
#include <stdexcept>
#include <string>
#include <utility>

#include "table/table_guard.h"

namespace msrec {

void Table::AttachDevice(const DeviceConfig& config, float* values) {
  Guard::Run(this, [&] {
    RefuseQuantised("a device cache");
    if (placement().workers > 1) {
      throw std::invalid_argument(
          core_.Where("device_rows must be None with more than one worker, got " +
                      std::to_string(placement().workers) + " workers"));
    }
    device_ = std::make_unique<DeviceCache>(&core_, &lookup_, config, values);
    core_.device = core_.context.device = device_->rows();
  });
}

DeviceCache& Table::Device() const {
  if (device_ == nullptr) throw std::invalid_argument(core_.Where("has no device cache"));
  return *device_;
}

DeviceCache& Table::Device(bool shared) const {
  Device().RequireShared(shared);
  return *device_;
}

void Table::SetDeviceStates(float* states) {
  Guard::Run(this, [&] { Device(true).SetStates(states); });
}

int32_t Table::device_state_width() {
  return Guard::Run(this, [&] { return core_.context.rule.StateWidth(core_.config.dim); });
}

int64_t Table::LookupSlots(const IdView& ids, const IdFilter& filter, float* values,
                           int32_t* slots) {
  return Guard::Run(this, [&] { return Device().Lookup(ids, filter, values, slots); });
}

RowMoves Table::Prepare(const IdView& ids, const IdFilter& filter) {
  return Guard::Run(this, [&] { return Device().Prepare(ids, filter); });
}

RowMoves Table::FetchDirty() {
  return Guard::Run(this, [&] { return Device().FetchDirty(); });
}

void Table::FinishMove(const float* out_values, size_t values, const float* out_states,
                       size_t states) {
  Guard::Run(this, [&] { Device().FinishMove(out_values, values, out_states, states); });
}

void Table::ReportGradient(int64_t ticket) {
  Guard::Run(this, [&] { Device().ReportGradient(ticket); });
}

size_t Table::CountTouched() {
  return Guard::Run(this, [&] { return Device(false).touched(); });
}

void Table::Touched(int32_t* slots, size_t room) {
  Guard::Run(this, [&] { Device(false).CopyTouched(slots, room); });
}

std::array<float, 2> Table::BeginDeviceStep(const StepInput& input) {
  return Guard::Run(this, [&] {
    const DeviceCache& device = Device(false);
    core_.RequireOptimizer();
    const StepConstants c = optimizer_.Constants(input);
    device.RequireNonePrepared();
    return std::array<float, 2>{c.adam_lr, c.adam_eps};
  });
}

void Table::FinishDeviceStep() {
  Guard::Run(this, [&] {
    Device(false).NoteUpdated();
    FinishStep();
  });
}

}  // namespace msrec
