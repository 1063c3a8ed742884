// SPDX-License-Identifier: Apache-2.0
//
// SharedSlots: allocates slots for the rows of a table, and the memory of the slots. Not thread
// safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "readers/shared_memory.h"

namespace msrec {

class SharedSlots {
 public:
  // At first, all slots are free. `memory` must outlive this object.
  SharedSlots(const SharedMemory* memory, size_t table);

  // Allocate n slots and write them to `out`. If Allocate throws std::bad_alloc, no slot is
  // allocated.
  void Allocate(size_t n, uint32_t* out);
  void Free(uint32_t slot) {
    words_[slot / 64] &= ~(uint64_t{1} << slot % 64);
    look_ = std::min<uint64_t>(look_, slot / 64);
    --used_;
  }
  // Mark a slot as used. Throws SharedDamaged if the slot is already used or out of range.
  void Take(uint64_t slot);
  // Return memory to the operating system: the units in which no slot is used.
  void ReleaseFree();

  uint64_t end() const { return end_; }  // all slots in use are below end()
  uint64_t used() const { return used_; }

 private:
  // Size of a unit in bytes. The memory of a unit is allocated and freed as a whole.
  static constexpr uint64_t kUnit = 256 << 10;

  bool IsUsed(uint64_t slot) const { return (words_[slot / 64] >> slot % 64 & 1) != 0; }
  void Mark(uint64_t slot);
  void Populate(uint64_t first, uint64_t last);  // slots `first` to `last`, inclusive

  const SharedMemory* const memory_;
  const SharedTableSpec& spec_;
  const size_t stride_;
  const uint64_t most_;  // slots
  uint64_t end_ = 0, used_ = 0;
  uint64_t look_ = 0;  // words before this index have no free slot
  std::vector<uint64_t> words_;
  std::vector<bool> there_;  // for each unit, whether its memory is allocated
};

}  // namespace msrec
