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
          Where("device_rows must be in [1, 2^30], got " + std::to_string(config.rows)));
    }
    if (device_ != nullptr) throw std::invalid_argument(Where("has a device cache already"));
    if (context_.eviction.by_norm() && !config.shared) RefuseUnshared("eviction by norm");
    if (config.shared == (values == nullptr)) {
      throw std::invalid_argument(Where("values of the device cache must be given where shared"));
    }
    auto device = std::make_unique<DeviceRows>(config, config_.dim);
    device->SetStates(nullptr, context_.rule.StateWidth(config_.dim));
    if (config.shared) {
      device->SetValues(values);
      const size_t bytes = sizeof(float) * config_.dim;
      std::memcpy(device->Value(device->unknown_slot()), unknown_row_.data(), bytes);
      std::memset(device->Value(device->zero_slot()), 0, bytes);
    }
    device_ = std::move(device);
    context_.device = device_.get();
    is_touched_.assign(config.shared ? 0 : device_->slots(), 0);
  });
}

void Table::SetDeviceStates(float* states) {
  Guard::Run(this, [&] {
    RequireDevice(true);
    device_->SetStates(states, context_.rule.StateWidth(config_.dim));
  });
}

int32_t Table::device_state_width() {
  return Guard::Run(this, [&] { return context_.rule.StateWidth(config_.dim); });
}

void Table::RequireDevice(bool shared) const {
  if (device_ == nullptr) throw std::invalid_argument(Where("has no device cache"));
  if (device_->shared() != shared) {
    throw std::invalid_argument(
        Where(shared ? "has its device cache out of the host's memory"
                     : "has its device cache in the host's memory: it moves rows by itself"));
  }
}

void Table::RefuseUnshared(const char* what) const {
  throw std::invalid_argument(
      Where(std::string(what) +
            " is not possible with a device cache out of the host's memory; use plain lookups and "
            "the optimizers' step in the graph, or make the table without device_rows"));
}

void Table::RequireFresh() const {
  if (device_ == nullptr || device_->shared()) return;
  if (!moving_.empty() || !device_->Dirty().empty()) {
    throw std::runtime_error(
        Where("rows have their newest value on the device only: call device.sync() first"));
  }
}

void Table::RequireNonePrepared() const {
  if (prepared_.empty()) return;
  throw std::runtime_error(
      Where("a lookup was prepared that the step has not made: call device.prepare(ids) after the "
            "step before, once for each lookup of the step to come"));
}

// ---------------------------------------------------------------- lookups

// Before anything changes: makes a batch unique, and throws std::invalid_argument if its keys do
// not fit beside those of the step's earlier lookups. Makes room for the swaps.
void Table::RequireSlots(Batch* batch, bool trained, std::vector<SlotSwap>* swaps) {
  if (device_->shared() && device_->state_width() > 0 && device_->State(0) == nullptr) {
    throw std::runtime_error(Where("its device cache has no memory for the optimizer's state"));
  }
  ForShards(*batch, [&](int s) { batch->MakeUnique(s); });
  batch->made_unique = true;
  size_t needed = device_->Needed(*batch);
  if (needed > device_->slots() && !trained) {
    // No step will come that ends the lookups before.
    device_->NextStep();
    needed = device_->Needed(*batch);
  }
  if (needed > device_->slots()) {
    throw std::invalid_argument(
        Where("device_rows must be at least " + std::to_string(needed) +
              ", the distinct keys of the lookups since the last optimizer step, got " +
              std::to_string(device_->slots())));
  }
  device_->ReserveAssign(*batch, swaps);
  slot_of_key_.Reset(batch->n);
}

// After a lookup that read its rows on the host: they take their slots, for the step and for the
// lookups to come.
void Table::PlaceOnDevice(const Batch& batch, std::vector<SlotSwap>* swaps) {
  device_->Assign(batch, slot_of_key_.data(), swaps);
  device_->Move(*swaps);
}

int64_t Table::MapToSlots(const IdView& ids, const IdFilter& filter, int32_t* slots,
                          std::vector<SlotSwap>* swaps, std::vector<uint32_t>* held) {
  const bool trained = trainable_;
  if (trained) RequireTrainable();
  auto batch = NewBatch(ids, filter);
  batch->on_device = true;
  RequireSlots(batch.get(), trained, swaps);
  auto kept = NewPlace();
  if (below_ != nullptr) below_->lookups.reserve(below_->lookups.size() + 1);
  uint32_t* found = slot_of_key_.data();
  if (held != nullptr) held->reserve(batch->n);
  Resolve(batch.get(), trained ? &Shard::FindOrInsert : &Shard::FindOnly, nullptr, nullptr);
  if (below_ != nullptr) below_->lookups.emplace_back(HashIds(ids), ids.size);
  device_->Assign(*batch, found, swaps);
  if (batch->begin[kNumShards] < batch->n) {
    std::fill_n(slots, batch->n, static_cast<int32_t>(device_->zero_slot()));
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
      if (!shards_[s]->Holds(batch->key[i])) device_->Forget(s, batch->key[i]);
    }
  }
  for (int s = 0; held != nullptr && s < kNumShards; ++s) {
    const size_t n = batch->begin[s + 1] == batch->begin[s] ? 0 : batch->unique[s];
    for (size_t i = batch->begin[s]; i < batch->begin[s] + n; ++i) {
      if (batch->row[i] != nullptr) held->push_back(found[i]);
    }
  }
  if (trained && device_->shared()) return Keep(std::move(batch), std::move(kept));
  Recycle(std::move(batch));
  return trained ? next_ticket_++ : kFrozenTicket;
}

int64_t Table::LookupSlots(const IdView& ids, const IdFilter& filter, float* values,
                           int32_t* slots) {
  return Guard::Run(this, [&]() -> int64_t {
    if (device_ == nullptr) RequireDevice(true);
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
    if (!device_->shared()) {
      throw std::runtime_error(
          Where("this lookup was not prepared: call device.prepare(ids) for it before the step"));
    }
    if (values != nullptr && values != device_->Value(0)) {
      throw std::runtime_error(Where("the memory of its device cache has moved"));
    }
    std::vector<SlotSwap> swaps;
    const int64_t ticket = MapToSlots(ids, filter, slots, &swaps, nullptr);
    device_->Move(swaps);
    return ticket;
  });
}

Table::RowMoves Table::Prepare(const IdView& ids, const IdFilter& filter) {
  return Guard::Run(this, [&] {
    if (device_ == nullptr) RequireDevice(true);
    if (!moving_.empty()) throw std::runtime_error(Where("rows are being moved"));
    // Everything that can fail comes first.
    std::list<PreparedLookup> one(1);
    PreparedLookup& lookup = one.front();
    const auto* data = static_cast<const char*>(ids.data);
    lookup.ids.assign(data, data + ids.size * (ids.is_int64 ? 8 : 4));
    lookup.is_int64 = ids.is_int64;
    lookup.filter = filter;
    lookup.slots.resize(ids.size);
    const size_t dim = config_.dim;
    const size_t width = device_->state_width();
    std::vector<SlotSwap> swaps;
    std::vector<uint32_t> held;  // the slots of its distinct keys
    RowMoves moves;
    std::map<int64_t, std::vector<uint32_t>> place;
    if (!device_->shared()) {
      const size_t most = std::min<size_t>(ids.size, device_->slots());
      moves.out_slots.reserve(most);
      moves.in_slots.reserve(most);
      moves.in_values.reserve(most * dim);
      moves.in_states.reserve(most * width);
      moving_.reserve(most);
      place.emplace(0, std::vector<uint32_t>());
    }
    lookup.ticket = MapToSlots(ids, filter, lookup.slots.data(), &swaps, &held);
    if (device_->shared()) {
      device_->Move(swaps);
    } else {
      for (const SlotSwap& swap : swaps) {
        if (swap.out != nullptr) {
          moves.out_slots.push_back(static_cast<int32_t>(swap.slot));
          moving_.push_back(swap);
        }
        moves.in_slots.push_back(static_cast<int32_t>(swap.slot));
        const float* value = Value(swap.in);
        moves.in_values.insert(moves.in_values.end(), value, value + dim);
        moves.in_states.insert(moves.in_states.end(), value + dim, value + dim + width);
      }
      if (lookup.ticket != kFrozenTicket) {
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
    if (device_ == nullptr) RequireDevice(true);
    RowMoves moves;
    if (device_->shared()) {
      device_->FreshenAll();
      return moves;
    }
    if (!moving_.empty()) throw std::runtime_error(Where("rows are being moved"));
    std::vector<SlotSwap> dirty = device_->Dirty();
    for (const SlotSwap& swap : dirty) moves.out_slots.push_back(static_cast<int32_t>(swap.slot));
    moving_ = std::move(dirty);
    device_->Written(moving_);
    return moves;
  });
}

void Table::FinishMove(const float* out_values, size_t values, const float* out_states,
                       size_t states) {
  Guard::Run(this, [&] {
    RequireDevice(false);
    const size_t rows = moving_.size();
    const auto require = [&](const char* what, size_t width, size_t got) {
      if (got == rows * width) return;
      throw std::invalid_argument(Where(std::string(what) + " must have " + std::to_string(rows) +
                                        " rows of " + std::to_string(width) +
                                        " numbers, the rows being moved, got " +
                                        std::to_string(got) + " numbers"));
    };
    require("values", config_.dim, values);
    require("states", device_->state_width(), states);
    for (size_t i = 0; i < rows; ++i) {
      device_->CopyOut(moving_[i], out_values + i * config_.dim,
                       out_states + i * device_->state_width());
    }
    device_->written_back += rows;
    moving_.clear();
  });
}

// ---------------------------------------------------------------- the step

void Table::StepOnDevice(const StepConstants& c, int shard) {
  constexpr size_t kAhead = 8;
  size_t first = 0;
  for (int s = 0; s < shard; ++s) first += gradients_.part(s).n;
  GradientSum::Part* const part = &gradients_.part(shard);
  float** const values = value_of_row_.data() + first;
  float** const states = state_of_row_.data() + first;
  std::fill_n(values, part->n, nullptr);
  std::fill_n(states, part->n, nullptr);
  for (size_t i = 0; i < part->n; ++i) {
    if (i + kAhead < part->n) device_->map().Prefetch(part->key[i + kAhead]);
    if (part->row[i] == nullptr) continue;
    const uint32_t slot = device_->Find(part->key[i]);
    if (slot == SlotMap::kNone) continue;
    values[i] = device_->Value(slot);
    states[i] = device_->State(slot);
    device_->MarkDirty(slot, part->row[i]);
    part->row[i] = nullptr;  // its block is not what is updated
  }
  context_.kernels->step_apart(c, config_.dim, values, states, part->sum.data(), part->n);
}

void Table::ForgetDeviceStep() {
  if (device_ == nullptr) return;
  device_->NextStep();
  prepared_.clear();
  device_lookups_.clear();
  for (const uint32_t slot : touched_) is_touched_[slot] = 0;
  touched_.clear();
}

void Table::ReportGradient(int64_t ticket) {
  Guard::Run(this, [&] {
    RequireDevice(false);
    if (ticket == kFrozenTicket) return;
    const auto it = device_lookups_.find(ticket);
    if (it == device_lookups_.end()) {
      throw std::runtime_error(Where("got a gradient for a lookup it no longer knows (ticket " +
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
    if (room < touched_.size()) throw std::runtime_error(Where("the step changed while it ran"));
    std::copy(touched_.begin(), touched_.end(), slots);
    std::fill(slots + touched_.size(), slots + room, static_cast<int32_t>(device_->scratch_slot()));
  });
}

std::array<float, 2> Table::BeginDeviceStep(const StepInput& input) {
  return Guard::Run(this, [&] {
    RequireDevice(false);
    RequireOptimizer();
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
      const int64_t key = device_->map().key(slot);
      ++rows[ShardOf(key, HashKey(key), context_.identity())];
    }
    for (int s = 0; s < kNumShards; ++s) shards_[s]->ReserveChanges(rows[s]);
    for (const uint32_t slot : touched_) {
      const int64_t key = device_->map().key(slot);
      char* row = ShardFor(key).Find(key);
      if (row == nullptr || device_->Find(key) != slot) continue;  // it has left since
      device_->MarkDirty(slot, row);
      ShardFor(key).Touch(row);
    }
    FinishStep();
  });
}

}  // namespace msrec
