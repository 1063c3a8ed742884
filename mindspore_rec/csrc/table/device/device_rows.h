// SPDX-License-Identifier: Apache-2.0
//
// DeviceRows: the rows of a table that are in its device cache. The cache is two matrices, values
// [slots + 3, dim] and optimizer states [slots + 3, state width], of a device or, where it is the
// CPU, in memory shared with it; its last three rows read as unknown keys do, as padding does
// (zeros), and take what nobody wants.
//
// Numbers in the cache are float32; of rows that are narrower, float32 that are rounded as the rows
// are, so that nothing is lost on the way.
//
// A row in the cache has its newest value and state there; its block in host memory keeps the
// metadata, and an older value and state while the slot is dirty. A row whose block is freed,
// demoted or overwritten must leave the cache first: WriteBackAndForget or Forget.
//
// In a section that runs in parallel over shards only calls with a shard number, Find and Fresh may
// be used, of keys of that shard.
#pragma once

#include <cstdint>
#include <vector>

#include "rows/batch.h"
#include "rows/row_layout.h"
#include "table/device/slot_map.h"

namespace msrec {

struct DeviceConfig {
  int64_t rows = 0;
  bool lfu = false;
  // Whether `values` and the states are memory of the host. If not, the caller moves rows.
  bool shared = true;
};

// A row that is to be moved: out of a slot, then another into it.
struct SlotSwap {
  uint32_t slot;
  char* out;  // where the old row belongs; null: there is none, or it is as it was
  const char* in;
};

class DeviceRows {
 public:
  // Requires: the layout outlives it. It may change with the states.
  DeviceRows(const DeviceConfig& config, const RowLayout* layout);

  uint32_t slots() const { return map_.capacity(); }
  uint32_t unknown_slot() const { return slots(); }
  uint32_t zero_slot() const { return slots() + 1; }
  uint32_t scratch_slot() const { return slots() + 2; }
  bool shared() const { return config_.shared; }
  int dim() const { return dim_; }
  int state_width() const { return state_width_; }
  void SetValues(float* values) { values_ = values; }
  // Everything must be out: their layout may have changed.
  void SetStates(float* states, int width);
  float* Value(uint32_t slot) const { return values_ + static_cast<size_t>(slot) * dim_; }
  float* State(uint32_t slot) const { return states_ + static_cast<size_t>(slot) * state_width_; }

  // The slot of key, or SlotMap::kNone.
  uint32_t Find(int64_t key) const {
    const uint32_t slot = map_.Find(key);
    return slot == SlotMap::kNone || gone_[slot] ? SlotMap::kNone : slot;
  }
  // Finds the slots of the shard's distinct keys in the batch, if the keys have rows.
  void FindAll(const Batch& batch, int shard, uint32_t* slots) const;
  // Notes that the row in the slot was changed; `host` is its block.
  void MarkDirty(uint32_t slot, char* host) {
    host_[slot] = host;
    dirty_[slot] = 1;
  }

  // Brings the block in host memory up to date. Throws std::runtime_error where it is not and the
  // memory is not shared.
  void WriteBack(int64_t key);
  void WriteBackAll();
  // Forgets a row whose block is about to go: its slot is free from the next sequential section
  // on.
  void Forget(int shard, int64_t key);
  // Brings the block up to date, and forgets the row as Forget does.
  void WriteBackAndForget(int shard, int64_t key);
  // Drops everything without bringing any block up to date.
  void Clear();

  // Returns the number of slots that are in use in this step if the batch is added: the pinned
  // slots, and one for each key of the batch that has no pinned slot.
  size_t Needed(const Batch& batch) const;
  // Makes room for what Assign notes of a batch that was made unique.
  void ReserveAssign(const Batch& batch, std::vector<SlotSwap>* swaps);
  // Gives a slot to each distinct key of the batch that has a row. `slots` is laid out as
  // batch.key; the rows to move are appended to `swaps`. Requires room (Needed, ReserveAssign), and
  // cannot fail then.
  void Assign(const Batch& batch, uint32_t* slots, std::vector<SlotSwap>* swaps);
  // Moves rows; shared memory only.
  void Move(const std::vector<SlotSwap>& swaps);
  // Dirty slots, and the blocks their rows belong to.
  std::vector<SlotSwap> Dirty() const;
  // Notes that the rows of these swaps have been copied to their blocks: their slots are clean.
  void Written(const std::vector<SlotSwap>& swaps);
  void CopyOut(const SlotSwap& swap, const float* value, const float* state) const;

  void NextStep();
  void Use(const std::vector<uint32_t>& slots);
  const SlotMap& map() const { return map_; }

  uint64_t hits = 0, misses = 0, written_back = 0;
  std::vector<SlotSwap> moving;  // that the caller moves, without shared memory
  size_t bytes() const;

 private:
  void ApplyLeaving();

  const DeviceConfig config_;
  const RowLayout* const layout_;  // of the blocks in host memory
  const int dim_;
  int state_width_ = 0;
  float* values_ = nullptr;
  float* states_ = nullptr;
  SlotMap map_;
  std::vector<char*> host_;
  std::vector<uint8_t> dirty_;
  std::vector<uint8_t> gone_;  // forgotten, its slot not yet free
  // Slots that were forgotten, a list a shard: forgetting must not fail.
  uint32_t leaving_[kNumShards];
  std::vector<uint32_t> next_leaving_;
  std::vector<size_t> missing_;  // of a batch, while it is assigned
};

}  // namespace msrec
