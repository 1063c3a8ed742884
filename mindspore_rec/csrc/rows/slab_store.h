// SPDX-License-Identifier: Apache-2.0
//
// SlabStore: rows of one fixed size, addressed by a dense 32-bit row id. Rows never move: memory
// grows by whole slabs, and a freed row is reused by a later Allocate. Not thread safe; one shard
// owns it.
//
// Slab 0 has kFirstRows rows. Each next slab has as many rows as all slabs before it, until a slab
// reaches kSlabBytes. All further slabs have kSlabBytes. So a tiny table is small, and a large
// table has few slabs, which use huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msrec {

class SlabStore {
 public:
  // `frees`: whether the owner ever frees rows.
  explicit SlabStore(size_t stride, bool frees = true);
  ~SlabStore();
  SlabStore(const SlabStore&) = delete;
  SlabStore& operator=(const SlabStore&) = delete;

  // Make sure that the next n Allocate() calls cannot fail. Throws std::bad_alloc; then the store
  // is unchanged.
  void Reserve(size_t n);

  // Number of Allocate() calls that need no memory.
  size_t room() const { return Capacity() - live(); }

  // Return a zeroed row, whose metadata marks it as not live. Throws std::bad_alloc.
  uint32_t Allocate();

  // Requires: id came from Allocate and has not been freed since.
  void Free(uint32_t id) noexcept;

  char* Row(uint32_t id) const {
    if (id >= slab_rows_) {
      return slabs_[(id >> slab_shift_) + small_slabs_ - 1] + (id & (slab_rows_ - 1)) * stride_;
    }
    if (id < kFirstRows) return slabs_[0] + id * stride_;
    const int bit = 31 - __builtin_clz(id);
    return slabs_[bit - kFirstShift + 1] + (id - (1u << bit)) * stride_;
  }

  // Exchange the rows and row sizes of two stores. The address of the store stays, so an index over
  // it stays valid.
  void Swap(SlabStore* other) noexcept;

  size_t stride() const { return stride_; }
  // Upper bound of row ids: every live row's id is below it.
  uint32_t end() const { return end_; }
  size_t live() const { return end_ - free_.size(); }
  // Bytes of memory, including the memory of rows that Allocate has not returned yet.
  size_t bytes() const { return bytes_; }

 private:
  static constexpr int kFirstShift = 5;
  static constexpr uint32_t kFirstRows = 1u << kFirstShift;
  static constexpr size_t kSlabBytes = size_t{4} << 20;

  void AddSlab();
  size_t SlabBytes(size_t slab) const;
  size_t Capacity() const;

  size_t stride_;
  int slab_shift_;        // log2 of rows in a full-size slab
  uint32_t slab_rows_;    // 1 << slab_shift_
  uint32_t small_slabs_;  // slabs before the first full-size one
  uint32_t end_ = 0;
  size_t bytes_ = 0;
  std::vector<char*> slabs_;
  std::vector<uint32_t> free_;  // with room for every row, so that Free cannot fail
  bool frees_;
};

}  // namespace msrec
