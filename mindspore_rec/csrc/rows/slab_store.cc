// SPDX-License-Identifier: Apache-2.0
#include "rows/slab_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "util/bytes.h"

namespace msrec {
namespace {

// Return zeroed memory. A block of at least the size of a huge page is aligned and uses huge pages.
// Random access to small pages would cause many TLB misses.
char* MapBlock(size_t bytes) {
  if (bytes < kHugePage) {
    auto* block = static_cast<char*>(std::calloc(1, bytes));
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }
  const size_t span = bytes + kHugePage;
  void* raw = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  const auto begin = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (begin + kHugePage - 1) & ~(kHugePage - 1);
  if (aligned > begin) munmap(raw, aligned - begin);
  const uintptr_t tail = begin + span - (aligned + bytes);
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE);
  return reinterpret_cast<char*>(aligned);
}

void UnmapBlock(char* block, size_t bytes) {
  if (bytes < kHugePage) {
    std::free(block);
  } else {
    munmap(block, bytes);
  }
}

}  // namespace

SlabStore::SlabStore(size_t stride, bool frees) : stride_(stride), frees_(frees) {
  slab_shift_ = kFirstShift;
  while ((size_t{1} << slab_shift_) * stride_ < kSlabBytes) ++slab_shift_;
  slab_rows_ = 1u << slab_shift_;
  small_slabs_ = slab_shift_ - kFirstShift + 1;
}

void SlabStore::Swap(SlabStore* other) noexcept {
  std::swap(stride_, other->stride_);
  std::swap(slab_shift_, other->slab_shift_);
  std::swap(slab_rows_, other->slab_rows_);
  std::swap(small_slabs_, other->small_slabs_);
  std::swap(end_, other->end_);
  std::swap(bytes_, other->bytes_);
  slabs_.swap(other->slabs_);
  free_.swap(other->free_);
  std::swap(frees_, other->frees_);
}

SlabStore::~SlabStore() {
  for (size_t i = 0; i < slabs_.size(); ++i) UnmapBlock(slabs_[i], SlabBytes(i));
}

size_t SlabStore::SlabBytes(size_t slab) const {
  if (slab < small_slabs_) {
    const size_t rows = slab == 0 ? kFirstRows : size_t{kFirstRows} << (slab - 1);
    const size_t bytes = rows * stride_;
    return bytes < kHugePage ? bytes : RoundUp(bytes, 4096);
  }
  const size_t bytes = slab_rows_ * stride_;
  return RoundUp(bytes, bytes < kHugePage ? 64 : 4096);
}

size_t SlabStore::Capacity() const {
  const size_t n = slabs_.size();
  if (n == 0) return 0;
  if (n <= small_slabs_) return size_t{kFirstRows} << (n - 1);
  return (n - small_slabs_ + 1) * size_t{slab_rows_};
}

void SlabStore::AddSlab() {
  slabs_.reserve(slabs_.size() + 1 > slabs_.capacity() ? 2 * slabs_.size() + 8 : 0);
  const size_t bytes = SlabBytes(slabs_.size());
  char* block = MapBlock(bytes);
  slabs_.push_back(block);
  try {
    if (frees_ && free_.capacity() < Capacity()) {
      free_.reserve(std::max(Capacity(), 2 * free_.capacity()));
    }
  } catch (...) {
    slabs_.pop_back();
    UnmapBlock(block, bytes);
    throw;
  }
  bytes_ += bytes;
}

void SlabStore::Reserve(size_t n) {
  if (n <= free_.size()) return;
  const size_t need = end_ + (n - free_.size());
  if (need >= std::numeric_limits<uint32_t>::max()) throw std::bad_alloc();
  while (Capacity() < need) AddSlab();
}

uint32_t SlabStore::Allocate() {
  if (!free_.empty()) {
    const uint32_t id = free_.back();
    free_.pop_back();
    return id;
  }
  if (end_ == Capacity()) Reserve(1);
  return end_++;
}

void SlabStore::Free(uint32_t id) noexcept {
  std::memset(Row(id), 0, stride_);
  free_.push_back(id);
}

}  // namespace msrec
