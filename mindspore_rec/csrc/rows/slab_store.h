// SPDX-License-Identifier: Apache-2.0
//
// SlabStore: rows of one fixed size, addressed by a dense 32-bit row id. Rows never move. Memory
// grows by whole slabs. A later Allocate reuses freed rows. Not thread safe; each object belongs to
// one shard.
//
// Slab 0 has kFirstRows rows. Each later slab has as many rows as all previous slabs together.
// Beginning with the first slab of at least kSlabBytes, all slabs have the same number of rows. A
// tiny table takes little memory. A large table has few slabs, and the large slabs use huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msrec {

class SlabStore {
 public:
  // `frees` is true if the owner may free rows.
  explicit SlabStore(size_t stride, bool frees = true);
  ~SlabStore();
  SlabStore(const SlabStore&) = delete;
  SlabStore& operator=(const SlabStore&) = delete;

  // Reserve memory so that the next n calls of Allocate cannot fail. If Reserve throws
  // std::bad_alloc, no row has changed, but slabs that Reserve has allocated stay.
  void Reserve(size_t n);

  // Return the number of rows that Allocate can return without new memory.
  size_t room() const { return Capacity() - live(); }

  // Return the id of a zeroed row. The metadata of a zeroed row marks the row as not live. Throws
  // std::bad_alloc.
  uint32_t Allocate();

  // Requires: Allocate has returned id, and id has not been freed since.
  void Free(uint32_t id) noexcept;

  char* Row(uint32_t id) const {
    if (id >= slab_rows_) {
      return slabs_[(id >> slab_shift_) + small_slabs_ - 1] + (id & (slab_rows_ - 1)) * stride_;
    }
    if (id < kFirstRows) return slabs_[0] + id * stride_;
    const int bit = 31 - __builtin_clz(id);
    return slabs_[bit - kFirstShift + 1] + (id - (1u << bit)) * stride_;
  }

  // Exchange the contents of two stores: rows and row sizes. The SlabStore objects keep their
  // addresses, so an index with a pointer to a store stays valid.
  void Swap(SlabStore* other) noexcept;

  size_t stride() const { return stride_; }
  // Return an upper bound of the row ids: the ids of all live rows are below end().
  uint32_t end() const { return end_; }
  size_t live() const { return end_ - free_.size(); }
  // Return the bytes of allocated memory, including memory for rows that Allocate has not returned
  // yet.
  size_t bytes() const { return bytes_; }

 private:
  static constexpr int kFirstShift = 5;
  static constexpr uint32_t kFirstRows = 1u << kFirstShift;
  static constexpr size_t kSlabBytes = size_t{4} << 20;

  void AddSlab();
  size_t SlabBytes(size_t slab) const;
  size_t Capacity() const;

  size_t stride_;
  int slab_shift_;        // log2 of slab_rows_
  uint32_t slab_rows_;    // rows in a full-size slab, 1 << slab_shift_
  uint32_t small_slabs_;  // number of slabs before the first full-size slab
  uint32_t end_ = 0;
  size_t bytes_ = 0;
  std::vector<char*> slabs_;
  std::vector<uint32_t> free_;  // has capacity for every row, so that Free cannot fail
  bool frees_;
};

}  // namespace msrec
