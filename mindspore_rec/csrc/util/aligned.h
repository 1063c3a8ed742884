// SPDX-License-Identifier: Apache-2.0
//
// AlignedMemory: uninitialised bytes, aligned to a cache line. The memory only grows, and is kept
// between uses.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace msrec {

class AlignedMemory {
 public:
  static constexpr size_t kAlignment = 64;

  // Returns memory of at least `bytes` bytes. The contents are lost if the memory grows.
  void* AtLeast(size_t bytes) {
    if (bytes > capacity_) {
      data_.reset();
      capacity_ = 0;
      const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
      data_.reset(std::aligned_alloc(kAlignment, rounded));
      if (data_ == nullptr) throw std::bad_alloc();
      capacity_ = rounded;
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data_;
  size_t capacity_ = 0;
};

}  // namespace msrec
