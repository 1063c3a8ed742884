// SPDX-License-Identifier: Apache-2.0
//
// SharedArena: allocates ranges of a SharedMemory's arena. The list of free ranges is not in the
// shared memory. After a crash, the next writer creates a SharedArena, and calls Take for each
// range that a root reaches.
//
// Any thread may call. Throws std::bad_alloc.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "readers/shared_memory.h"

namespace msrec {

class SharedArena {
 public:
  // At first, the whole arena is free. `memory` must outlive this object.
  explicit SharedArena(const SharedMemory* memory);

  // Allocate a range; return its offset, a multiple of 64. The contents are undefined.
  uint64_t Allocate(uint64_t bytes);
  void Free(uint64_t offset, uint64_t bytes);
  // Mark a range as allocated. Throws SharedDamaged if the range is not free.
  void Take(uint64_t offset, uint64_t bytes);
  // Release the memory of all free ranges to the operating system.
  void ReleaseFree();

 private:
  static uint64_t Size(uint64_t bytes) { return bytes == 0 ? 64 : (bytes + 63) / 64 * 64; }

  const SharedMemory* const memory_;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // offset -> bytes; ranges are not adjacent
};

}  // namespace msrec
