// SPDX-License-Identifier: Apache-2.0
//
// AlignedBuffer: zeroed memory at a multiple of 4096, as direct I/O requires.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "tier/format.h"

namespace msrec {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes) : size_(RoundUp(bytes)) {
    data_.reset(static_cast<char*>(std::aligned_alloc(kBlock, size_)));
    if (data_ == nullptr) throw std::bad_alloc();
    std::memset(data_.get(), 0, size_);
  }
  char* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  size_t size_ = 0;
  std::unique_ptr<char, Free> data_;
};

}  // namespace msrec
