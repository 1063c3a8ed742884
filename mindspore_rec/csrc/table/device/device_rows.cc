// SPDX-License-Identifier: Apache-2.0
#include "table/device/device_rows.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>

#include "rows/row_values.h"
#include "util/thread_pool.h"

namespace msrec {

DeviceRows::DeviceRows(const DeviceConfig& config, const RowLayout* layout)
    : config_(config),
      layout_(layout),
      dim_(layout->dim),
      map_(static_cast<uint32_t>(config.rows), config.lfu) {
  host_.assign(slots(), nullptr);
  dirty_.assign(slots(), 0);
  gone_.assign(slots(), 0);
  next_leaving_.assign(slots(), SlotMap::kNone);
  std::fill(std::begin(leaving_), std::end(leaving_), SlotMap::kNone);
}

void DeviceRows::SetStates(float* states, int width) {
  states_ = states;
  state_width_ = width;
}

void DeviceRows::FindAll(const Batch& batch, int shard, uint32_t* found) const {
  constexpr size_t kAhead = 8;
  const size_t first = batch.begin[shard];
  const size_t last = first + batch.unique[shard];
  for (size_t i = first; i < last; ++i) {
    if (i + kAhead < last) map_.Prefetch(batch.key[i + kAhead]);
    found[i] = batch.row[i] == nullptr ? SlotMap::kNone : Find(batch.key[i]);
  }
}

void DeviceRows::WriteBack(int64_t key) {
  const uint32_t slot = Find(key);
  if (slot == SlotMap::kNone || !dirty_[slot]) return;
  if (!shared()) {
    throw std::runtime_error(
        "a row's newest value is on the device: call device.sync() of the table first");
  }
  CopyOut({slot, host_[slot], nullptr}, Value(slot), State(slot));
  dirty_[slot] = 0;
}

void DeviceRows::WriteBackAll() {
  const std::vector<SlotSwap> swaps = Dirty();
  if (swaps.empty()) return;
  if (!shared()) WriteBack(map_.key(swaps[0].slot));  // throws
  Move(swaps);
  Written(swaps);
}

void DeviceRows::Forget(int shard, int64_t key) {
  const uint32_t slot = Find(key);
  if (slot == SlotMap::kNone) return;
  gone_[slot] = 1;
  dirty_[slot] = 0;
  next_leaving_[slot] = leaving_[shard];
  leaving_[shard] = slot;
}

void DeviceRows::WriteBackAndForget(int shard, int64_t key) {
  WriteBack(key);
  Forget(shard, key);
}

void DeviceRows::ApplyLeaving() {
  for (uint32_t& first : leaving_) {
    for (; first != SlotMap::kNone; first = next_leaving_[first]) {
      map_.Free(first);
      gone_[first] = 0;
    }
  }
}

void DeviceRows::Clear() {
  std::fill(std::begin(leaving_), std::end(leaving_), SlotMap::kNone);
  map_.Clear();
  std::fill(dirty_.begin(), dirty_.end(), 0);
  std::fill(gone_.begin(), gone_.end(), 0);
}

size_t DeviceRows::Needed(const Batch& batch) const {
  size_t needed = map_.pinned();
  for (int s = 0; s < kNumShards; ++s) {
    const size_t first = batch.begin[s];
    const size_t n = batch.begin[s + 1] == first ? 0 : batch.unique[s];
    for (size_t i = first; i < first + n; ++i) {
      const uint32_t slot = Find(batch.key[i]);
      needed += slot == SlotMap::kNone || !map_.IsPinned(slot);
    }
  }
  return needed;
}

void DeviceRows::ReserveAssign(const Batch& batch, std::vector<SlotSwap>* swaps) {
  size_t keys = 0;
  for (int s = 0; s < kNumShards; ++s) {
    if (batch.begin[s + 1] != batch.begin[s]) keys += batch.unique[s];
  }
  missing_.reserve(keys);
  swaps->reserve(swaps->size() + keys);
}

void DeviceRows::Assign(const Batch& batch, uint32_t* found, std::vector<SlotSwap>* swaps) {
  ApplyLeaving();
  missing_.clear();
  // First find all rows of the batch that are already in the cache, so that none of these rows
  // becomes a victim.
  for (int s = 0; s < kNumShards; ++s) {
    if (batch.begin[s + 1] == batch.begin[s]) continue;
    FindAll(batch, s, found);
    const size_t last = batch.begin[s] + batch.unique[s];
    for (size_t i = batch.begin[s]; i < last; ++i) {
      if (batch.row[i] == nullptr) {
        found[i] = unknown_slot();
      } else if (found[i] == SlotMap::kNone) {
        missing_.push_back(i);
      } else {
        map_.Use(found[i], Meta(batch.row[i])->count);
        ++hits;
      }
    }
  }
  for (const size_t i : missing_) {
    const uint32_t slot = map_.Take(batch.key[i], Meta(batch.row[i])->count);
    if (slot == SlotMap::kNone) throw std::logic_error("no slot of the device cache is free");
    swaps->push_back({slot, dirty_[slot] ? host_[slot] : nullptr, batch.row[i]});
    host_[slot] = batch.row[i];
    dirty_[slot] = 0;
    found[i] = slot;
  }
  misses += missing_.size();
}

void DeviceRows::CopyOut(const SlotSwap& swap, const float* value, const float* state) const {
  WriteValue(*layout_, value, swap.out);
  if (state_width_ > 0) WriteOptimizerState(*layout_, state, swap.out);
}

void DeviceRows::Move(const std::vector<SlotSwap>& swaps) {
  constexpr size_t kBlock = 1024;
  const auto blocks = static_cast<int64_t>((swaps.size() + kBlock - 1) / kBlock);
  ThreadPool::Global().ParallelFor(blocks, [&](int64_t block) {
    const size_t last = std::min(swaps.size(), (static_cast<size_t>(block) + 1) * kBlock);
    for (size_t i = block * kBlock; i < last; ++i) {
      const SlotSwap& swap = swaps[i];
      if (swap.out != nullptr) CopyOut(swap, Value(swap.slot), State(swap.slot));
      if (swap.in == nullptr) continue;
      ReadValue(*layout_, swap.in, Value(swap.slot));
      if (state_width_ > 0) ReadOptimizerState(*layout_, swap.in, State(swap.slot));
    }
  });
  for (const SlotSwap& swap : swaps) written_back += swap.out != nullptr;
}

std::vector<SlotSwap> DeviceRows::Dirty() const {
  std::vector<SlotSwap> swaps;
  for (uint32_t slot = 0; slot < slots(); ++slot) {
    if (dirty_[slot]) swaps.push_back({slot, host_[slot], nullptr});
  }
  return swaps;
}

void DeviceRows::Written(const std::vector<SlotSwap>& swaps) {
  for (const SlotSwap& swap : swaps) dirty_[swap.slot] = 0;
}

void DeviceRows::NextStep() {
  ApplyLeaving();
  map_.NextStep();
}

void DeviceRows::Use(const std::vector<uint32_t>& slots) {
  for (const uint32_t slot : slots) {
    if (map_.used(slot)) map_.Use(slot, 0);
  }
}

size_t DeviceRows::bytes() const {
  return map_.bytes() + host_.size() * (sizeof(char*) + 2) +
         (static_cast<size_t>(slots()) + 3) * (dim_ + state_width_) * sizeof(float);
}

}  // namespace msrec
