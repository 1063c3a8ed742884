// SPDX-License-Identifier: Apache-2.0
//
// DeviceRows: the rows in the device cache of a table. The cache is two matrices, values [slots +
// 3, dim] and optimizer states [slots + 3, state width]. The matrices are in device memory or, if
// the device is the CPU, in memory shared with the host. The last three rows of each matrix belong
// to no key: the value for unknown keys, zeros for padding, and a scratch row that receives
// unneeded writes.
//
// Numbers in the cache are float32. If the table has a narrower number type, the float32 numbers in
// the cache are rounded to this type, so that a transfer to the host is exact.
//
// The newest value and state of a cached row are in the cache, and the row's metadata is in the
// row's block in host memory. While the row's slot is dirty, value and state in the block are
// outdated. Before a row's block is freed, demoted or overwritten, WriteBackAndForget or Forget
// must remove the row from the cache.
//
// Code that runs in parallel over shards may pass only keys and slots of its own shard, and may
// call only Find, Value, State, MarkDirty, WriteBack and methods with a shard number.
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
  // True if `values` and the states are in host memory. If `shared` is false, the caller must copy
  // the rows between the device and the host.
  bool shared = true;
};

// A swap of rows: one row moves out of a slot, then another row moves in.
struct SlotSwap {
  uint32_t slot;
  char* out;  // block of the old row, or null if there is no old row or the row is unchanged
  const char* in;
};

class DeviceRows {
 public:
  // Requires: the layout outlives this object. After a change of the layout, SetStates must be
  // called.
  DeviceRows(const DeviceConfig& config, const RowLayout* layout);

  uint32_t slots() const { return map_.capacity(); }
  uint32_t unknown_slot() const { return slots(); }
  uint32_t zero_slot() const { return slots() + 1; }
  uint32_t scratch_slot() const { return slots() + 2; }
  bool shared() const { return config_.shared; }
  int dim() const { return dim_; }
  int state_width() const { return state_width_; }
  void SetValues(float* values) { values_ = values; }
  // Requires: the cache has no rows, because a changed layout would make cached rows invalid.
  void SetStates(float* states, int width);
  float* Value(uint32_t slot) const { return values_ + static_cast<size_t>(slot) * dim_; }
  float* State(uint32_t slot) const { return states_ + static_cast<size_t>(slot) * state_width_; }

  // Returns the slot of `key`, or SlotMap::kNone if the cache has no row of `key`.
  uint32_t Find(int64_t key) const {
    const uint32_t slot = map_.Find(key);
    return slot == SlotMap::kNone || gone_[slot] ? SlotMap::kNone : slot;
  }
  // For each distinct key that the batch has in the shard, writes the slot of the key to `slots`.
  // If the key has no row in the cache, the slot is SlotMap::kNone.
  void FindAll(const Batch& batch, int shard, uint32_t* slots) const;
  // Marks the row in the slot as changed; `host` is the row's block.
  void MarkDirty(uint32_t slot, char* host) {
    host_[slot] = host;
    dirty_[slot] = 1;
  }

  // Updates the row's block in host memory. Throws std::runtime_error if the block is outdated and
  // the host cannot read the slots.
  void WriteBack(int64_t key);
  void WriteBackAll();
  // Removes a row whose block will be freed. The slot becomes free after all parallel loops over
  // shards have ended.
  void Forget(int shard, int64_t key);
  // Updates the row's block, and then removes the row from the cache, as Forget does.
  void WriteBackAndForget(int shard, int64_t key);
  // Drops all rows without updating their blocks.
  void Clear();

  // Returns the number of slots that this step would use if the batch were added. In addition to
  // the pinned slots, a step uses one slot for each key of the batch that has no pinned slot.
  size_t Needed(const Batch& batch) const;
  // Reserves memory, so that the next call of Assign cannot run out of memory. The batch's keys
  // must be unique.
  void ReserveAssign(const Batch& batch, std::vector<SlotSwap>* swaps);
  // Assigns a slot to each distinct key of the batch, if the key has a row. `slots` has the layout
  // of batch.key; rows to move are appended to `swaps`. Requires: the batch's keys fit into the
  // cache (Needed), and ReserveAssign was called. Assign cannot fail if the keys fit and
  // ReserveAssign was called.
  void Assign(const Batch& batch, uint32_t* slots, std::vector<SlotSwap>* swaps);
  // Moves rows between the cache and the rows' blocks in host memory. Requires shared memory.
  void Move(const std::vector<SlotSwap>& swaps);
  // Returns the dirty slots and the blocks of their rows.
  std::vector<SlotSwap> Dirty() const;
  // Marks the slots in `swaps` as clean. Requires: the slots' rows have been copied to their blocks
  // in host memory.
  void Written(const std::vector<SlotSwap>& swaps);
  void CopyOut(const SlotSwap& swap, const float* value, const float* state) const;

  void NextStep();
  void Use(const std::vector<uint32_t>& slots);
  const SlotMap& map() const { return map_; }

  uint64_t hits = 0, misses = 0, written_back = 0;
  std::vector<SlotSwap> moving;  // swaps that the caller performs, without shared memory
  size_t bytes() const;

 private:
  void ApplyLeaving();

  const DeviceConfig config_;
  const RowLayout* const layout_;  // layout of the blocks in host memory
  const int dim_;
  int state_width_ = 0;
  float* values_ = nullptr;
  float* states_ = nullptr;
  SlotMap map_;
  std::vector<char*> host_;
  std::vector<uint8_t> dirty_;
  std::vector<uint8_t> gone_;  // 1 if the row was forgotten and the slot is not free yet
  // Freed slots: one linked list per shard. A linked list needs no allocation, so Forget cannot
  // fail.
  uint32_t leaving_[kNumShards];
  std::vector<uint32_t> next_leaving_;
  std::vector<size_t> missing_;  // missing keys of a batch, during Assign
};

}  // namespace msrec
