// SPDX-License-Identifier: Apache-2.0
//
// AppendLog: a list that grows at its end, in blocks that never move. Appending does not copy old
// elements. A caller that must not fail in the middle of several changes can reserve room first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace msrec {

template <typename T>
class AppendLog {
 public:
  // Makes sure that the next n Add() calls cannot fail. Throws std::bad_alloc.
  void Reserve(size_t n) {
    while (size_ + n > blocks_.size() * kBlock) {
      // The vector grows before the new block is allocated, so push_back only stores the block.
      if (blocks_.size() == blocks_.capacity()) blocks_.reserve(2 * blocks_.size() + 8);
      blocks_.push_back(std::unique_ptr<T[]>(new T[kBlock]));
    }
  }
  void Add(const T& item) {
    if (size_ == blocks_.size() * kBlock) Reserve(1);
    blocks_[size_ / kBlock][size_ % kBlock] = item;
    ++size_;
  }
  size_t size() const { return size_; }
  const T& operator[](size_t i) const { return blocks_[i / kBlock][i % kBlock]; }

  void AppendTo(std::vector<T>* out) const {
    out->reserve(out->size() + size_);
    for (size_t i = 0; i < size_; i += kBlock) {
      const T* block = blocks_[i / kBlock].get();
      out->insert(out->end(), block, block + std::min(kBlock, size_ - i));
    }
  }
  void Clear() noexcept {
    blocks_.clear();
    size_ = 0;
  }

 private:
  static constexpr size_t kBlock = 256;

  std::vector<std::unique_ptr<T[]>> blocks_;
  size_t size_ = 0;
};

}  // namespace msrec
