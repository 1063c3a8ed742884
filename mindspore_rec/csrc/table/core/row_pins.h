// SPDX-License-Identifier: Apache-2.0
//
// RowPins: stores how long each row of a shard must stay in host memory, and whether the row has a
// copy in a lower tier. RowPins is a part of a shard in a table with lower tiers. The entries are
// indexed by the places of the rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rows/slab_store.h"
#include "table/core/lookup_purpose.h"
#include "table/core/shard_context.h"

namespace msrec {

class RowPins {
 public:
  // Requires: context and rows outlive this object.
  RowPins(const ShardContext* context, const SlabStore* rows) : context_(*context), rows_(*rows) {}

  // Allocate entries for all places below `end`. Throws std::bad_alloc. If a place has no entry,
  // other methods allocate the entry, and may throw std::bad_alloc.
  void Reserve(size_t end) { pins_.resize(std::max(pins_.size(), end)); }
  // Reserve memory to record that `more` additional rows have copies. The memory grows
  // geometrically, because ReserveCopies is also called for single rows. Throws std::bad_alloc.
  void ReserveCopies(size_t more) {
    const size_t wanted = departed_.size() + copies_ + more;
    if (wanted > departed_.capacity()) {
      departed_.reserve(std::max(wanted, 2 * departed_.capacity()));
    }
  }

  // ---- hold

  RowPin Of(uint32_t id) const { return pins_[id]; }
  // Initialize the entry of a new row, which has no copy in a lower tier.
  void Begin(uint32_t id) { At(id) = {0, 0, context_.pins.released}; }
  // Initialize the entry of a promoted row. If `hold` is kBatch, hold the row for the prefetched
  // batch with number `number`. The caller must call AddCopy for the row's copy.
  void BeginPromoted(uint32_t id, Hold hold, uint16_t number) {
    At(id) = {0, 1, hold == Hold::kBatch ? number : context_.pins.released};
  }
  // Hold a row in host memory until the end of the current step or call.
  void HoldRow(uint32_t id, Hold hold) {
    const Pins& pins = context_.pins;
    RowPin& pin = At(id);
    if (hold == Hold::kStep) {
      pin.used = pins.step & 0x7fff;
    } else if (pin.used != pins.step) {
      pin.used = pins.call & 0x7fff;
    }
  }
  // Hold a row in host memory for the prefetched batch with number `number`.
  void HoldAhead(uint32_t id, uint16_t number) {
    RowPin& pin = At(id);
    pin.needed = context_.pins.Later(pin.needed, number);
  }

  // ---- copies in lower tiers. AddCopy requires ReserveCopies.

  size_t copies() const { return copies_; }
  void AddCopy() noexcept { ++copies_; }
  // Record that a row has a copy, unless the copy is already recorded.
  void MarkCopy(uint32_t id) {
    RowPin& pin = At(id);
    copies_ += !pin.copy;
    pin.copy = 1;
  }
  // Record that row `id` is removed from the table. If the row has a copy in a lower tier, the copy
  // must be erased later.
  void Depart(uint32_t id, int64_t key) noexcept {
    if (!pins_[id].copy) return;
    departed_.push_back(key);
    --copies_;
  }
  // Record that row `id` has left host memory and is now only in a lower tier.
  void Demote(uint32_t id) noexcept { copies_ -= pins_[id].copy; }
  // Return the keys of removed rows whose copies in lower tiers must still be erased. Call
  // ForgetDeparted only after the copies have been erased.
  const std::vector<int64_t>& departed() const { return departed_; }
  void ForgetDeparted() noexcept { departed_.clear(); }
  // Record that no row has a copy in a lower tier any more.
  void ForgetCopies() noexcept {
    for (RowPin& pin : pins_) pin.copy = 0;
    copies_ = 0;
    departed_.clear();
  }
  // Forget all rows.
  void Clear() noexcept {
    pins_.clear();
    departed_.clear();
    copies_ = 0;
  }

 private:
  RowPin& At(uint32_t id) {
    if (id >= pins_.size()) pins_.resize(std::max<size_t>(rows_.end(), size_t{id} + 1));
    return pins_[id];
  }

  const ShardContext& context_;
  const SlabStore& rows_;
  std::vector<RowPin> pins_;       // indexed by place
  std::vector<int64_t> departed_;  // has capacity for all copies
  size_t copies_ = 0;              // number of rows with a copy in a lower tier
};

}  // namespace msrec
