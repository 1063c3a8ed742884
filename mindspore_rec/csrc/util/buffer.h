// SPDX-License-Identifier: Apache-2.0
//
// Buffer: an uninitialised array that only grows and is kept between steps. If the array were
// allocated again in each step, the page faults would take longer than the work on the data.
#pragma once

#include <cstddef>
#include <memory>

namespace msrec {

template <typename T>
class Buffer {
 public:
  // Returns an array of at least n elements. The contents are lost if the array grows.
  T* Reset(size_t n) {
    if (n > capacity_) {
      data_.reset();
      capacity_ = 0;
      data_.reset(new T[n]);
      capacity_ = n;
    }
    return data_.get();
  }
  // Returns an array of at least n elements. The first `used` elements keep their contents.
  T* Extend(size_t used, size_t n) {
    if (n > capacity_) {
      const size_t grown = n > capacity_ + capacity_ / 2 ? n : capacity_ + capacity_ / 2;
      std::unique_ptr<T[]> bigger(new T[grown]);
      for (size_t i = 0; i < used; ++i) bigger[i] = data_[i];
      data_ = std::move(bigger);
      capacity_ = grown;
    }
    return data_.get();
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  size_t bytes() const { return capacity_ * sizeof(T); }

 private:
  std::unique_ptr<T[]> data_;
  size_t capacity_ = 0;
};

}  // namespace msrec
