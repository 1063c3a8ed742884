// SPDX-License-Identifier: Apache-2.0
//
// Table: lookups and steps where rows are in a device cache.
#include <algorithm>
#include <cstring>
#include <list>
#include <map>

#include "table/for_shards.h"
#include "table/table_guard.h"

namespace msrec {
namespace {

constexpr int64_t kMaxDeviceRows = int64_t{1} << 30;

bool Same(const IdFilter& a, const IdFilter& b) {
  return a.has_padding == b.has_padding && (!a.has_padding || a.padding_key == b.padding_key) &&
         a.coefficient == b.coefficient;
}

}  // namespace

void Table::AttachDevice(const DeviceConfig& config, float* values) {
  Guard::Run(this, [&] {
    if (config.rows < 1 || config.rows > kMaxDeviceRows) {
      throw std::invalid_argument(
          core_.Where("device_rows must be in [1, 2^30], got " + std::to_string(config.rows)));
    }
    if (core_.device != nullptr)
      throw std::invalid_argument(core_.Where("has a device cache already"));
    if (core_.context.eviction.by_norm() && !config.shared)
      core_.RefuseUnshared("eviction by norm");
    if (config.shared == (values == nullptr)) {
      throw std::invalid_argument(
          core_.Where("values of the device cache must be given where shared"));
    }
    auto device = std::make_unique<DeviceRows>(config, core_.config.dim);
    device->SetStates(nullptr, core_.context.rule.StateWidth(core_.config.dim));
    if (config.shared) {
      device->SetValues(values);
      const size_t bytes = sizeof(float) * core_.config.dim;
      std::memcpy(device->Value(device->unknown_slot()), core_.unknown_row.data(), bytes);
      std::memset(device->Value(device->zero_slot()), 0, bytes);
    }
    core_.device = std::move(device);
    core_.context.device = core_.device.get();
    is_touched_.assign(config.shared ? 0 : core_.device->slots(), 0);
  });
}

void Table::SetDeviceStates(float* states) {
  Guard::Run(this, [&] {
    RequireDevice(true);
    core_.device->SetStates(states, core_.context.rule.StateWidth(core_.config.dim));
  });
}

int32_t Table::device_state_width() {
  return Guard::Run(this, [&] { return core_.context.rule.StateWidth(core_.config.dim); });
}

void Table::RequireDevice(bool shared) const {
  if (core_.device == nullptr) throw std::invalid_argument(core_.Where("has no device cache"));
  if (core_.device->shared() != shared) {
    throw std::invalid_argument(
        core_.Where(shared ? "has its device cache out of the host's memory"
                           : "has its device cache in the host's memory: it moves rows by itself"));
  }
}

void Table::RequireNonePrepared() const {
  if (prepared_.empty()) return;
  throw std::runtime_error(core_.Where(
      "a lookup was prepared that the step has not made: call device.prepare(ids) after the "
      "step before, once for each lookup of the step to come"));
}

// ---------------------------------------------------------------- lookups

// Before anything changes: makes a batch unique, and throws std::invalid_argument if its keys do
// not fit beside those of the step's earlier lookups. Makes room for the swaps.
void Table::RequireSlots(Batch* batch, bool trained, std::vector<SlotSwap>* swaps) {
  if (core_.device->shared() && core_.device->state_width() > 0 &&
      core_.device->State(0) == nullptr) {
    throw std::runtime_error(
        core_.Where("its device cache has no memory for the optimizer's state"));
  }
  ForShards(*batch, [&](int s) { batch->MakeUnique(s); });
  batch->made_unique = true;
  size_t needed = core_.device->Needed(*batch);
  if (needed > core_.device->slots() && !trained) {
    // No step will come that ends the lookups before.
    core_.device->NextStep();
    needed = core_.device->Needed(*batch);
  }
  if (needed > core_.device->slots()) {
    throw std::invalid_argument(
        core_.Where("device_rows must be at least " + std::to_string(needed) +
                    ", the distinct keys of the lookups since the last optimizer step, got " +
                    std::to_string(core_.device->slots())));
  }
  core_.device->ReserveAssign(*batch, swaps);
  slot_of_key_.Reset(batch->n);
}

// After a lookup that read its rows on the host: they take their slots, for the step and for the
// lookups to come.
void Table::PlaceOnDevice(const Batch& batch, std::vector<SlotSwap>* swaps) {
  core_.device->Assign(batch, slot_of_key_.data(), swaps);
  core_.device->Move(*swaps);
}

int64_t Table::MapToSlots(const IdView& ids, const IdFilter& filter, int32_t* slots,
                          std::vector<SlotSwap>* swaps, std::vector<uint32_t>* held) {
  const bool trained = core_.trainable;
  if (trained) core_.RequireTrainable();
  auto batch = core_.lookups.NewBatch(ids, filter);
  batch->on_device = true;
  RequireSlots(batch.get(), trained, swaps);
  auto kept = core_.lookups.NewPlace();
  core_.lookups.ReserveNote();
  uint32_t* found = slot_of_key_.data();
  if (held != nullptr) held->reserve(batch->n);
  Resolve(batch.get(), trained ? &Shard::FindOrInsert : &Shard::FindOnly, nullptr, nullptr);
  core_.lookups.Note(ids);
  core_.device->Assign(*batch, found, swaps);
  if (batch->begin[kNumShards] < batch->n) {
    std::fill_n(slots, batch->n, static_cast<int32_t>(core_.device->zero_slot()));
  }
  ForShards(*batch, [&](int s) {
    const size_t first = batch->begin[s];
    for (size_t i = first; i < batch->begin[s + 1]; ++i) {
      slots[batch->pos[i]] = static_cast<int32_t>(found[first + batch->inverse[i]]);
    }
  });
  // A frozen table's rows below were only shown: they do not stay.
  for (int s = 0; !trained && below_ != nullptr && s < kNumShards; ++s) {
    const size_t n = batch->begin[s + 1] == batch->begin[s] ? 0 : batch->unique[s];
    for (size_t i = batch->begin[s]; i < batch->begin[s] + n; ++i) {
      if (!core_.shards[s]->Holds(batch->key[i])) core_.device->Forget(s, batch->key[i]);
    }
  }
  for (int s = 0; held != nullptr && s < kNumShards; ++s) {
    const size_t n = batch->begin[s + 1] == batch->begin[s] ? 0 : batch->unique[s];
    for (size_t i = batch->begin[s]; i < batch->begin[s] + n; ++i) {
      if (batch->row[i] != nullptr) held->push_back(found[i]);
    }
  }
  if (trained && core_.device->shared())
    return core_.lookups.Keep(std::move(batch), std::move(kept));
  core_.lookups.Recycle(std::move(batch));
  return trained ? core_.lookups.NewTicket() : StepLookups::kFrozenTicket;
}

int64_t Table::LookupSlots(const IdView& ids, const IdFilter& filter, float* values,
                           int32_t* slots) {
  return Guard::Run(this, [&]() -> int64_t {
    if (core_.device == nullptr) RequireDevice(true);
    const size_t bytes = ids.size * (ids.is_int64 ? 8 : 4);
    for (auto it = prepared_.begin(); it != prepared_.end(); ++it) {
      if (it->is_int64 != ids.is_int64 || it->ids.size() != bytes || !Same(it->filter, filter) ||
          (bytes > 0 && std::memcmp(it->ids.data(), ids.data, bytes) != 0)) {
        continue;
      }
      std::copy(it->slots.begin(), it->slots.end(), slots);
      const int64_t ticket = it->ticket;
      prepared_.erase(it);
      return ticket;
    }
    if (!core_.device->shared()) {
      throw std::runtime_error(core_.Where(
          "this lookup was not prepared: call device.prepare(ids) for it before the step"));
    }
    if (values != nullptr && values != core_.device->Value(0)) {
      throw std::runtime_error(core_.Where("the memory of its device cache has moved"));
    }
    std::vector<SlotSwap> swaps;
    const int64_t ticket = MapToSlots(ids, filter, slots, &swaps, nullptr);
    core_.device->Move(swaps);
    return ticket;
  });
}

Table::RowMoves Table::Prepare(const IdView& ids, const IdFilter& filter) {
  return Guard::Run(this, [&] {
    if (core_.device == nullptr) RequireDevice(true);
    if (!core_.moving.empty()) throw std::runtime_error(core_.Where("rows are being moved"));
    // Everything that can fail comes first.
    std::list<PreparedLookup> one(1);
    PreparedLookup& lookup = one.front();
    const auto* data = static_cast<const char*>(ids.data);
    lookup.ids.assign(data, data + ids.size * (ids.is_int64 ? 8 : 4));
    lookup.is_int64 = ids.is_int64;
    lookup.filter = filter;
    lookup.slots.resize(ids.size);
    const size_t dim = core_.config.dim;
    const size_t width = core_.device->state_width();
    std::vector<SlotSwap> swaps;
    std::vector<uint32_t> held;  // the slots of its distinct keys
    RowMoves moves;
    std::map<int64_t, std::vector<uint32_t>> place;
    if (!core_.device->shared()) {
      const size_t most = std::min<size_t>(ids.size, core_.device->slots());
      moves.out_slots.reserve(most);
      moves.in_slots.reserve(most);
      moves.in_values.reserve(most * dim);
      moves.in_states.reserve(most * width);
      core_.moving.reserve(most);
      place.emplace(0, std::vector<uint32_t>());
    }
    lookup.ticket = MapToSlots(ids, filter, lookup.slots.data(), &swaps, &held);
    if (core_.device->shared()) {
      core_.device->Move(swaps);
    } else {
      for (const SlotSwap& swap : swaps) {
        if (swap.out != nullptr) {
          moves.out_slots.push_back(static_cast<int32_t>(swap.slot));
          core_.moving.push_back(swap);
        }
        moves.in_slots.push_back(static_cast<int32_t>(swap.slot));
        const float* value = Value(swap.in);
        moves.in_values.insert(moves.in_values.end(), value, value + dim);
        moves.in_states.insert(moves.in_states.end(), value + dim, value + dim + width);
      }
      if (lookup.ticket != StepLookups::kFrozenTicket) {
        auto node = place.extract(place.begin());
        node.key() = lookup.ticket;
        node.mapped() = std::move(held);
        device_lookups_.insert(std::move(node));
      }
    }
    prepared_.splice(prepared_.end(), one);
    return moves;
  });
}

Table::RowMoves Table::FetchDirty() {
  return Guard::Run(this, [&] {
    if (core_.device == nullptr) RequireDevice(true);
    RowMoves moves;
    if (core_.device->shared()) {
      core_.device->WriteBackAll();
      return moves;
    }
    if (!core_.moving.empty()) throw std::runtime_error(core_.Where("rows are being moved"));
    std::vector<SlotSwap> dirty = core_.device->Dirty();
    for (const SlotSwap& swap : dirty) moves.out_slots.push_back(static_cast<int32_t>(swap.slot));
    core_.moving = std::move(dirty);
    core_.device->Written(core_.moving);
    return moves;
  });
}

void Table::FinishMove(const float* out_values, size_t values, const float* out_states,
                       size_t states) {
  Guard::Run(this, [&] {
    RequireDevice(false);
    const size_t rows = core_.moving.size();
    const auto require = [&](const char* what, size_t width, size_t got) {
      if (got == rows * width) return;
      throw std::invalid_argument(
          core_.Where(std::string(what) + " must have " + std::to_string(rows) + " rows of " +
                      std::to_string(width) + " numbers, the rows being moved, got " +
                      std::to_string(got) + " numbers"));
    };
    require("values", core_.config.dim, values);
    require("states", core_.device->state_width(), states);
    for (size_t i = 0; i < rows; ++i) {
      core_.device->CopyOut(core_.moving[i], out_values + i * core_.config.dim,
                            out_states + i * core_.device->state_width());
    }
    core_.device->written_back += rows;
    core_.moving.clear();
  });
}

// ---------------------------------------------------------------- the step

void Table::StepOnDevice(const StepConstants& c, int shard) {
  constexpr size_t kAhead = 8;
  size_t first = 0;
  for (int s = 0; s < shard; ++s) first += core_.lookups.gradients().part(s).n;
  GradientSum::Part* const part = &core_.lookups.gradients().part(shard);
  float** const values = value_of_row_.data() + first;
  float** const states = state_of_row_.data() + first;
  std::fill_n(values, part->n, nullptr);
  std::fill_n(states, part->n, nullptr);
  for (size_t i = 0; i < part->n; ++i) {
    if (i + kAhead < part->n) core_.device->map().Prefetch(part->key[i + kAhead]);
    if (part->row[i] == nullptr) continue;
    const uint32_t slot = core_.device->Find(part->key[i]);
    if (slot == SlotMap::kNone) continue;
    values[i] = core_.device->Value(slot);
    states[i] = core_.device->State(slot);
    core_.device->MarkDirty(slot, part->row[i]);
    part->row[i] = nullptr;  // its block is not what is updated
  }
  core_.context.kernels->step_apart(c, core_.config.dim, values, states, part->sum.data(), part->n);
}

void Table::ForgetDeviceStep() {
  if (core_.device == nullptr) return;
  core_.device->NextStep();
  prepared_.clear();
  device_lookups_.clear();
  for (const uint32_t slot : touched_) is_touched_[slot] = 0;
  touched_.clear();
}

void Table::ReportGradient(int64_t ticket) {
  Guard::Run(this, [&] {
    RequireDevice(false);
    if (ticket == StepLookups::kFrozenTicket) return;
    const auto it = device_lookups_.find(ticket);
    if (it == device_lookups_.end()) {
      throw std::runtime_error(
          core_.Where("got a gradient for a lookup it no longer knows (ticket " +
                      std::to_string(ticket) + ")"));
    }
    touched_.reserve(touched_.size() + it->second.size());
    for (const uint32_t slot : it->second) {
      if (is_touched_[slot]) continue;
      is_touched_[slot] = 1;
      touched_.push_back(slot);
    }
    device_lookups_.erase(it);
  });
}

size_t Table::CountTouched() {
  return Guard::Run(this, [&] {
    RequireDevice(false);
    return touched_.size();
  });
}

void Table::Touched(int32_t* slots, size_t room) {
  Guard::Run(this, [&] {
    RequireDevice(false);
    if (room < touched_.size())
      throw std::runtime_error(core_.Where("the step changed while it ran"));
    std::copy(touched_.begin(), touched_.end(), slots);
    std::fill(slots + touched_.size(), slots + room,
              static_cast<int32_t>(core_.device->scratch_slot()));
  });
}

std::array<float, 2> Table::BeginDeviceStep(const StepInput& input) {
  return Guard::Run(this, [&] {
    RequireDevice(false);
    core_.RequireOptimizer();
    const StepConstants c = Constants(input);
    RequireNonePrepared();
    return std::array<float, 2>{c.adam_lr, c.adam_eps};
  });
}

void Table::FinishDeviceStep() {
  Guard::Run(this, [&] {
    RequireDevice(false);
    size_t rows[kNumShards] = {};
    for (const uint32_t slot : touched_) {
      const int64_t key = core_.device->map().key(slot);
      ++rows[ShardOf(key, HashKey(key), core_.context.identity())];
    }
    for (int s = 0; s < kNumShards; ++s) core_.shards[s]->ReserveChanges(rows[s]);
    for (const uint32_t slot : touched_) {
      const int64_t key = core_.device->map().key(slot);
      char* row = core_.ShardFor(key).Find(key);
      if (row == nullptr || core_.device->Find(key) != slot) continue;  // it has left since
      core_.device->MarkDirty(slot, row);
      core_.ShardFor(key).Touch(row);
    }
    FinishStep();
  });
}

}  // namespace msrec
