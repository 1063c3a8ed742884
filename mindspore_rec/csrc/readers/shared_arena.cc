// SPDX-License-Identifier: Apache-2.0
#include "readers/shared_arena.h"

#include <iterator>
#include <new>

namespace msrec {
namespace {

constexpr uint64_t kKept = 64 << 10;  // a freed range with fewer bytes keeps its memory

}  // namespace

SharedArena::SharedArena(const SharedMemory* memory) : memory_(memory) {
  free_[memory->arena_offset()] = memory->arena_bytes();
}

uint64_t SharedArena::Allocate(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t size = Size(bytes);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < size) continue;
    const uint64_t offset = it->first, left = it->second - size;
    memory_->Populate(offset, size);
    free_.erase(it);
    if (left > 0) free_[offset + size] = left;
    return offset;
  }
  throw std::bad_alloc();
}

void SharedArena::Free(uint64_t offset, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t first = offset, size = Size(bytes);
  auto next = free_.lower_bound(first);
  if (next != free_.end() && first + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == first) {
      first = before->first;
      size += before->second;
      free_.erase(before);
    }
  }
  free_[first] = size;
  if (bytes < kKept) return;
  // If the first or last page of the range is free only together with an adjacent free range,
  // release this page, too.
  const uint64_t from = std::max(first, offset / kSharedPage * kSharedPage);
  const uint64_t to =
      std::min(first + size, (offset + Size(bytes) + kSharedPage - 1) / kSharedPage * kSharedPage);
  memory_->Release(from, to - from);
}

void SharedArena::Take(uint64_t offset, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t size = Size(bytes);
  auto it = free_.upper_bound(offset);
  const bool fits = offset % 64 == 0 && bytes <= memory_->arena_bytes() && it != free_.begin() &&
                    (--it, offset - it->first <= it->second) &&
                    size <= it->second - (offset - it->first);
  if (!fits) throw SharedDamaged("the shared memory is damaged: two things lie at one place");
  const uint64_t first = it->first, end = it->first + it->second;
  free_.erase(it);
  if (offset > first) free_[first] = offset - first;
  if (offset + size < end) free_[offset + size] = end - offset - size;
}

void SharedArena::ReleaseFree() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [offset, bytes] : free_) memory_->Release(offset, bytes);
}

}  // namespace msrec
