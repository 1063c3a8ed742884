// SPDX-License-Identifier: Apache-2.0
#include "readers/shared_slots.h"

#include <algorithm>
#include <limits>
#include <new>

namespace msrec {

SharedSlots::SharedSlots(const SharedMemory* memory, size_t table)
    : memory_(memory),
      spec_(memory->spec(table)),
      stride_(memory->stride(table)),
      most_(std::min<uint64_t>(spec_.rows_bytes / stride_,
                               std::numeric_limits<uint32_t>::max() - 1)) {}

void SharedSlots::Mark(uint64_t slot) {
  if (slot / 64 >= words_.size()) words_.resize(slot / 64 + 1);
  words_[slot / 64] |= uint64_t{1} << slot % 64;
  ++used_;
  end_ = std::max(end_, slot + 1);
}

void SharedSlots::Populate(uint64_t first, uint64_t last) {
  const uint64_t from = first * stride_ / kUnit, to = (last * stride_ + stride_ - 1) / kUnit;
  if (to >= there_.size()) there_.resize(to + 1);
  for (uint64_t unit = from; unit <= to; ++unit) {
    if (there_[unit]) continue;
    uint64_t next = unit + 1;
    while (next <= to && !there_[next]) ++next;
    const uint64_t bytes = std::min((next - unit) * kUnit, spec_.rows_bytes - unit * kUnit);
    memory_->Populate(spec_.rows_offset + unit * kUnit, bytes);
    std::fill(there_.begin() + static_cast<int64_t>(unit),
              there_.begin() + static_cast<int64_t>(next), true);
  }
}

void SharedSlots::Allocate(size_t n, uint32_t* out) {
  if (n == 0) return;
  size_t done = 0;
  try {
    while (done < n && used_ < end_) {
      while (look_ < words_.size() && words_[look_] == ~uint64_t{0}) ++look_;
      const uint64_t slot = look_ * 64 + static_cast<uint64_t>(__builtin_ctzll(~words_[look_]));
      if (slot >= end_) break;
      Populate(slot, slot);
      Mark(slot);
      out[done++] = static_cast<uint32_t>(slot);
    }
    const size_t more = n - done;
    if (more == 0) return;
    if (more > most_ - end_) throw std::bad_alloc();
    Populate(end_, end_ + more - 1);
    words_.resize((end_ + more + 63) / 64);
    for (size_t i = 0; i < more; ++i) {
      out[done++] = static_cast<uint32_t>(end_);
      Mark(end_);
    }
  } catch (...) {
    for (size_t i = 0; i < done; ++i) Free(out[i]);
    throw;
  }
}

void SharedSlots::Take(uint64_t slot) {
  if (slot >= most_ || (slot < end_ && IsUsed(slot))) {
    throw SharedDamaged("the shared memory is damaged: two keys have one row");
  }
  Populate(slot, slot);
  Mark(slot);
}

void SharedSlots::ReleaseFree() {
  const uint64_t units = (spec_.rows_bytes + kUnit - 1) / kUnit;
  there_.resize(std::max<size_t>(there_.size(), end_ * stride_ / kUnit + 1));
  const uint64_t known = std::min<uint64_t>(there_.size(), units);
  for (uint64_t unit = 0; unit < known; ++unit) {
    const uint64_t first = unit * kUnit / stride_;
    const uint64_t last = std::min(end_, ((unit + 1) * kUnit - 1) / stride_ + 1);
    bool used = false;
    for (uint64_t slot = first; slot < last && !used;) {
      if (slot % 64 == 0 && words_[slot / 64] == 0) {
        slot += 64;
      } else {
        used = IsUsed(slot++);
      }
    }
    if (used) continue;
    memory_->Release(spec_.rows_offset + unit * kUnit,
                     std::min(kUnit, spec_.rows_bytes - unit * kUnit));
    there_[unit] = false;
  }
  // Also release all units from `known` to `units` - 1. This writer has never used these units, but
  // an earlier writer may have allocated their pages.
  if (known < units) {
    memory_->Release(spec_.rows_offset + known * kUnit, spec_.rows_bytes - known * kUnit);
  }
  while (end_ > 0 && !IsUsed(end_ - 1)) {
    end_ = end_ % 64 == 0 && words_[end_ / 64 - 1] == 0 ? end_ - 64 : end_ - 1;
  }
  words_.resize((end_ + 63) / 64);
}

}  // namespace msrec
