// SPDX-License-Identifier: Apache-2.0
//
// GuardedPointers: an array between pages that nobody may read, so that to look past either end of
// it ends the program.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <vector>

namespace msrec {

template <typename T>
class GuardedPointers {
 public:
  // Copies the pointers to the end of a page if `at_end` is true, or else to its beginning.
  GuardedPointers(const std::vector<T*>& pointers, bool at_end)
      : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void* const memory = mmap(nullptr, 3 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char*>(memory);
    if (mprotect(memory_ + page_, page_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    data_ = reinterpret_cast<T**>(memory_ + page_) +
            (at_end ? page_ / sizeof(T*) - pointers.size() : 0);
    std::copy(pointers.begin(), pointers.end(), data_);
  }
  ~GuardedPointers() { munmap(memory_, 3 * page_); }
  GuardedPointers(const GuardedPointers&) = delete;
  GuardedPointers& operator=(const GuardedPointers&) = delete;

  T** data() const { return data_; }

 private:
  const size_t page_;
  char* memory_;
  T** data_;
};

}  // namespace msrec
