// SPDX-License-Identifier: Apache-2.0
#include "table/device_cache.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "rows/for_shards.h"
#include "rows/row_values.h"
#include "rows/step_constants.h"

namespace msrec {
namespace {

constexpr int64_t kMaxRows = int64_t{1} << 30;

bool Same(const IdFilter& a, const IdFilter& b) {
  return a.has_padding == b.has_padding && (!a.has_padding || a.padding_key == b.padding_key) &&
         a.coefficient == b.coefficient;
}

size_t BytesOf(const IdView& ids) { return ids.size * (ids.is_int64 ? 8 : 4); }

// Calls fn(shard, i) for each distinct key of a batch; i is the key's place in the batch. The
// batch's keys must have been made unique.
template <typename Fn>
void ForKeys(const Batch& batch, Fn fn) {
  for (int s = 0; s < kNumShards; ++s) {
    const size_t n = batch.begin[s + 1] == batch.begin[s] ? 0 : batch.unique[s];
    for (size_t i = batch.begin[s]; i < batch.begin[s] + n; ++i) fn(s, i);
  }
}

const DeviceConfig& Checked(const TableCore& core, const DeviceConfig& config,
                            const float* values) {
  if (config.rows < 1 || config.rows > kMaxRows) {
    throw std::invalid_argument(
        core.Where("device_rows must be in [1, 2^30], got " + std::to_string(config.rows)));
  }
  if (core.device != nullptr) throw std::invalid_argument(core.Where("has a device cache already"));
  if (core.context.eviction.by_norm() && !config.shared) core.RefuseUnshared("eviction by norm");
  const RowPrecision& precision = core.config.precision;
  if (!config.shared &&
      (precision.value != NumberType::kFloat32 || precision.state != NumberType::kFloat32 ||
       precision.accumulator != NumberType::kFloat32)) {
    core.RefuseUnshared("a value_dtype, state_dtype or accumulator_dtype other than float32");
  }
  if (config.shared == (values == nullptr)) {
    throw std::invalid_argument(
        core.Where("values of the device cache must be given where shared"));
  }
  return config;
}

}  // namespace

DeviceCache::DeviceCache(TableCore* core, BatchLookup* lookup, const DeviceConfig& config,
                         float* values)
    : core_(*core), lookup_(*lookup), rows_(Checked(*core, config, values), &core->context.layout) {
  SetStates(nullptr);
  if (!config.shared) {
    is_touched_.assign(rows_.slots(), 0);
    return;
  }
  rows_.SetValues(values);
  const size_t bytes = sizeof(float) * core_.config.dim;
  std::memcpy(rows_.Value(rows_.unknown_slot()), core_.unknown_row.data(), bytes);
  std::memset(rows_.Value(rows_.zero_slot()), 0, bytes);
}

void DeviceCache::SetStates(float* states) {
  rows_.SetStates(states, core_.context.rule.StateWidth(core_.config.dim));
}

void DeviceCache::RequireShared(bool shared) const {
  if (rows_.shared() == shared) return;
  throw std::invalid_argument(
      core_.Where(shared ? "has its device cache out of the host's memory"
                         : "has its device cache in the host's memory: it moves rows by itself"));
}

DeviceStats DeviceCache::Stats() const {
  DeviceStats stats;
  stats.rows = rows_.map().size();
  stats.capacity_rows = rows_.slots();
  stats.hits = static_cast<int64_t>(rows_.hits);
  stats.misses = static_cast<int64_t>(rows_.misses);
  stats.written_back_rows = static_cast<int64_t>(rows_.written_back);
  stats.memory = Bytes(rows_.bytes());
  return stats;
}

void DeviceCache::RequireNonePrepared() const {
  if (prepared_.empty()) return;
  throw std::runtime_error(core_.Where(
      "a lookup was prepared that the step has not made: call device.prepare(ids) after the "
      "step before, once for each lookup of the step to come"));
}

// ---------------------------------------------------------------- lookups

void DeviceCache::RequireSlots(Batch* batch, bool trained, std::vector<SlotSwap>* swaps) {
  if (rows_.shared() && rows_.state_width() > 0 && rows_.State(0) == nullptr) {
    throw std::runtime_error(
        core_.Where("its device cache has no memory for the optimizer's state"));
  }
  ForShards(*batch, [&](int s) { batch->MakeUnique(s); });
  batch->made_unique = true;
  size_t needed = rows_.Needed(*batch);
  if (needed > rows_.slots() && !trained && prepared_.empty()) {
    // Unpin the slots of earlier lookups here. An optimizer step would unpin the slots, but no
    // optimizer step follows a lookup that does not train. The slots of prepared lookups stay
    // pinned, because their rows are still to be read.
    rows_.NextStep();
    needed = rows_.Needed(*batch);
  }
  if (needed > rows_.slots()) {
    throw std::invalid_argument(
        core_.Where("device_rows must be at least " + std::to_string(needed) +
                    ", the distinct keys of the lookups since the last optimizer step, got " +
                    std::to_string(rows_.slots())));
  }
  rows_.ReserveAssign(*batch, swaps);
  slot_of_key_.Reset(batch->n);
}

void DeviceCache::Place(const Batch& batch, std::vector<SlotSwap>* swaps) {
  rows_.Assign(batch, slot_of_key_.data(), swaps);
  rows_.Move(*swaps);
}

// Writes the slot of each id to `slots`. `swaps` receives the rows that must move. Unless `held`
// is null, writes the slots of the distinct keys to `held`.
int64_t DeviceCache::MapToSlots(const IdView& ids, const IdFilter& filter, int32_t* slots,
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
  lookup_.Run(batch.get(), trained ? LookupPurpose::kTrain : LookupPurpose::kEvaluate, nullptr,
              nullptr);
  core_.lookups.Note(ids);
  rows_.Assign(*batch, found, swaps);
  if (batch->begin[kNumShards] < batch->n) {
    std::fill_n(slots, batch->n, static_cast<int32_t>(rows_.zero_slot()));
  }
  ForShards(*batch, [&](int s) {
    const size_t first = batch->begin[s];
    for (size_t i = first; i < batch->begin[s + 1]; ++i) {
      slots[batch->pos[i]] = static_cast<int32_t>(found[first + batch->inverse[i]]);
    }
  });
  if (!trained && core_.context.tiered) {
    // If a row is only in a lower tier, it has no block in host memory. A row without a block in
    // host memory must not stay in the cache.
    ForKeys(*batch, [&](int s, size_t i) {
      if (!core_.shards[s]->Holds(batch->key[i])) rows_.Forget(s, batch->key[i]);
    });
  }
  if (held != nullptr) {
    ForKeys(*batch, [&](int, size_t i) {
      if (batch->row[i] != nullptr) held->push_back(found[i]);
    });
  }
  if (trained && rows_.shared()) return core_.lookups.Keep(std::move(batch), std::move(kept));
  core_.lookups.Recycle(std::move(batch));
  return trained ? core_.lookups.NewTicket() : StepLookups::kFrozenTicket;
}

bool DeviceCache::PreparedLookup::IsFor(const IdView& other, const IdFilter& other_filter) const {
  const size_t bytes = BytesOf(other);
  return is_int64 == other.is_int64 && ids.size() == bytes && Same(filter, other_filter) &&
         (bytes == 0 || std::memcmp(ids.data(), other.data, bytes) == 0);
}

int64_t DeviceCache::Lookup(const IdView& ids, const IdFilter& filter, float* values,
                            int32_t* slots) {
  for (auto it = prepared_.begin(); it != prepared_.end(); ++it) {
    if (!it->IsFor(ids, filter)) continue;
    std::copy(it->slots.begin(), it->slots.end(), slots);
    const int64_t ticket = it->ticket;
    prepared_.erase(it);
    return ticket;
  }
  if (!rows_.shared()) {
    throw std::runtime_error(core_.Where(
        "this lookup was not prepared: call device.prepare(ids) for it before the step"));
  }
  if (values != nullptr && values != rows_.Value(0)) {
    throw std::runtime_error(core_.Where("the memory of its device cache has moved"));
  }
  std::vector<SlotSwap> swaps;
  const int64_t ticket = MapToSlots(ids, filter, slots, &swaps, nullptr);
  rows_.Move(swaps);
  return ticket;
}

RowMoves DeviceCache::Prepare(const IdView& ids, const IdFilter& filter) {
  if (!rows_.moving.empty()) throw std::runtime_error(core_.Where("rows are being moved"));
  // First do all operations that can fail.
  std::list<PreparedLookup> one(1);
  PreparedLookup& lookup = one.front();
  const auto* data = static_cast<const char*>(ids.data);
  lookup.ids.assign(data, data + BytesOf(ids));
  lookup.is_int64 = ids.is_int64;
  lookup.filter = filter;
  lookup.slots.resize(ids.size);
  const size_t dim = core_.config.dim;
  const size_t width = rows_.state_width();
  std::vector<SlotSwap> swaps;
  std::vector<uint32_t> held;  // the slots of its distinct keys
  RowMoves moves;
  std::map<int64_t, std::vector<uint32_t>> slots_of_this;
  if (!rows_.shared()) {
    const size_t most = std::min<size_t>(ids.size, rows_.slots());
    moves.out_slots.reserve(most);
    moves.in_slots.reserve(most);
    moves.in_values.reserve(most * dim);
    moves.in_states.reserve(most * width);
    rows_.moving.reserve(most);
    slots_of_this.emplace(0, std::vector<uint32_t>());
  }
  // Without training, the first lookup that is prepared begins a step: unpin the slots of the
  // lookups before it, so that all lookups that are prepared together find room.
  if (!core_.trainable && prepared_.empty()) rows_.NextStep();
  lookup.ticket = MapToSlots(ids, filter, lookup.slots.data(), &swaps, &held);
  if (rows_.shared()) {
    rows_.Move(swaps);
  } else {
    for (const SlotSwap& swap : swaps) {
      if (swap.out != nullptr) {
        moves.out_slots.push_back(static_cast<int32_t>(swap.slot));
        rows_.moving.push_back(swap);
      }
      moves.in_slots.push_back(static_cast<int32_t>(swap.slot));
      moves.in_values.resize(moves.in_values.size() + dim);
      ReadValue(core_.context.layout, swap.in, &*(moves.in_values.end() - dim));
      if (width == 0) continue;
      moves.in_states.resize(moves.in_states.size() + width);
      ReadOptimizerState(core_.context.layout, swap.in, &*(moves.in_states.end() - width));
    }
    if (lookup.ticket != StepLookups::kFrozenTicket) {
      auto node = slots_of_this.extract(slots_of_this.begin());
      node.key() = lookup.ticket;
      node.mapped() = std::move(held);
      slots_of_lookup_.insert(std::move(node));
    }
  }
  prepared_.splice(prepared_.end(), one);
  return moves;
}

// ---------------------------------------------------------------- moves

RowMoves DeviceCache::FetchDirty() {
  RowMoves moves;
  if (rows_.shared()) {
    rows_.WriteBackAll();
    return moves;
  }
  if (!rows_.moving.empty()) throw std::runtime_error(core_.Where("rows are being moved"));
  std::vector<SlotSwap> dirty = rows_.Dirty();
  for (const SlotSwap& swap : dirty) moves.out_slots.push_back(static_cast<int32_t>(swap.slot));
  rows_.moving = std::move(dirty);
  rows_.Written(rows_.moving);
  return moves;
}

void DeviceCache::FinishMove(const float* out_values, size_t values, const float* out_states,
                             size_t states) {
  RequireShared(false);
  const size_t rows = rows_.moving.size();
  const auto require = [&](const char* what, size_t width, size_t got) {
    if (got == rows * width) return;
    throw std::invalid_argument(
        core_.Where(std::string(what) + " must have " + std::to_string(rows) + " rows of " +
                    std::to_string(width) + " numbers, the rows being moved, got " +
                    std::to_string(got) + " numbers"));
  };
  require("values", core_.config.dim, values);
  require("states", rows_.state_width(), states);
  for (size_t i = 0; i < rows; ++i) {
    rows_.CopyOut(rows_.moving[i], out_values + i * core_.config.dim,
                  out_states + i * rows_.state_width());
  }
  rows_.written_back += rows;
  rows_.moving.clear();
}

// ---------------------------------------------------------------- the step

void DeviceCache::ReserveStep(size_t rows) {
  value_of_row_.Reset(rows);
  state_of_row_.Reset(rows);
}

void DeviceCache::UpdateRows(const StepConstants& constants, int shard) {
  constexpr size_t kAhead = 8;
  size_t first = 0;
  for (int s = 0; s < shard; ++s) first += core_.lookups.gradients().part(s).n;
  GradientSum::Part* const part = &core_.lookups.gradients().part(shard);
  float** const values = value_of_row_.data() + first;
  float** const states = state_of_row_.data() + first;
  std::fill_n(values, part->n, nullptr);
  std::fill_n(states, part->n, nullptr);
  for (size_t i = 0; i < part->n; ++i) {
    if (i + kAhead < part->n) rows_.map().Prefetch(part->key[i + kAhead]);
    if (part->row[i] == nullptr) continue;
    const uint32_t slot = rows_.Find(part->key[i]);
    if (slot == SlotMap::kNone) continue;
    values[i] = rows_.Value(slot);
    states[i] = rows_.State(slot);
    rows_.MarkDirty(slot, part->row[i]);
    part->row[i] = nullptr;  // its block is not what is updated
  }
  core_.context.row_kernels->step_apart(constants, core_.config.dim, part->key.data(), values,
                                        states, part->sum.data(), part->n);
}

void DeviceCache::ForgetStep() {
  rows_.NextStep();
  prepared_.clear();
  slots_of_lookup_.clear();
  for (const uint32_t slot : touched_) is_touched_[slot] = 0;
  touched_.clear();
}

void DeviceCache::ReportGradient(int64_t ticket) {
  RequireShared(false);
  if (ticket == StepLookups::kFrozenTicket) return;
  const auto it = slots_of_lookup_.find(ticket);
  if (it == slots_of_lookup_.end()) {
    throw std::runtime_error(core_.Where("got a gradient for a lookup it no longer knows (ticket " +
                                         std::to_string(ticket) + ")"));
  }
  touched_.reserve(touched_.size() + it->second.size());
  for (const uint32_t slot : it->second) {
    if (is_touched_[slot]) continue;
    is_touched_[slot] = 1;
    touched_.push_back(slot);
  }
  slots_of_lookup_.erase(it);
}

void DeviceCache::CopyTouched(int32_t* slots, size_t room) const {
  if (room < touched_.size())
    throw std::runtime_error(core_.Where("the step changed while it ran"));
  std::copy(touched_.begin(), touched_.end(), slots);
  std::fill(slots + touched_.size(), slots + room, static_cast<int32_t>(rows_.scratch_slot()));
}

void DeviceCache::NoteUpdated() {
  size_t rows[kNumShards] = {};
  for (const uint32_t slot : touched_) {
    const int64_t key = rows_.map().key(slot);
    ++rows[core_.ShardNumber(key)];
  }
  for (int s = 0; s < kNumShards; ++s) core_.shards[s]->changes().Reserve(rows[s]);
  for (const uint32_t slot : touched_) {
    const int64_t key = rows_.map().key(slot);
    char* row = core_.ShardFor(key).Find(key);
    if (row == nullptr || rows_.Find(key) != slot) continue;  // it has left since
    rows_.MarkDirty(slot, row);
    core_.ShardFor(key).Touch(row);
  }
}

}  // namespace msrec
