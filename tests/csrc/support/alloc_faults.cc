// SPDX-License-Identifier: Apache-2.0
//
// The linker sends the core's calloc, aligned_alloc and mmap to __wrap_ functions of this file
// (CMakeLists.txt); operator new is replaced as the language allows.
#include "alloc_faults.h"

#include <malloc.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace msrec {
namespace {

struct State {
  size_t nth;    // 0: not armed
  size_t limit;  // 0: not armed; else one more than the bytes that are allowed
  size_t counted;
  int64_t live;
  bool happened;
};
thread_local State state;

// Of all threads together.
std::atomic<size_t> nth_of_all{0};  // 0: not armed
std::atomic<size_t> counted_of_all{0};
std::atomic<size_t> on_others{0};
thread_local bool armed_all = false;

bool FailsOfAll() {
  const size_t nth = nth_of_all.load(std::memory_order_relaxed);
  if (nth == 0 || counted_of_all.fetch_add(1) + 1 != nth) return false;
  on_others += !armed_all;
  return true;
}

// Whether an allocation of that size may go on.
bool Allowed(size_t bytes) {
  if (FailsOfAll()) {
    state.happened = true;
    return false;
  }
  if (state.nth == 0 && state.limit == 0) return true;
  const bool fails = state.nth != 0
                         ? ++state.counted == state.nth
                         : state.live + static_cast<int64_t>(bytes) >= int64_t(state.limit);
  state.happened |= fails;
  return !fails;
}

void* Counted(void* block) {
  if (state.limit != 0 && block != nullptr) state.live += int64_t(malloc_usable_size(block));
  return block;
}

void* Allocate(size_t bytes, size_t alignment) {
  if (!Allowed(bytes)) return nullptr;
  if (alignment == 0) return Counted(std::malloc(bytes == 0 ? 1 : bytes));
  void* block = nullptr;
  return posix_memalign(&block, alignment, bytes) == 0 ? Counted(block) : nullptr;
}

void* AllocateOrThrow(size_t bytes, size_t alignment) {
  void* block = Allocate(bytes, alignment);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void Free(void* block) {
  if (state.limit != 0 && block != nullptr) state.live -= int64_t(malloc_usable_size(block));
  std::free(block);
}

}  // namespace

AllocationFaults::AllocationFaults(size_t nth, size_t bytes) { state = {nth, bytes, 0, 0, false}; }
AllocationFaults AllocationFaults::NthOfAllThreads(size_t nth) {
  armed_all = true;
  counted_of_all = 0;
  nth_of_all = nth;
  return {0, 0};
}
AllocationFaults::~AllocationFaults() {
  state.nth = state.limit = 0;
  nth_of_all = 0;
}
size_t AllocationFaults::on_other_threads() { return on_others; }
bool AllocationFaults::happened() { return state.happened; }

}  // namespace msrec

using msrec::Allocate;
using msrec::AllocateOrThrow;
using msrec::Free;

void* operator new(size_t n) { return AllocateOrThrow(n, 0); }
void* operator new[](size_t n) { return AllocateOrThrow(n, 0); }
void* operator new(size_t n, const std::nothrow_t&) noexcept { return Allocate(n, 0); }
void* operator new[](size_t n, const std::nothrow_t&) noexcept { return Allocate(n, 0); }
void* operator new(size_t n, std::align_val_t a) { return AllocateOrThrow(n, size_t(a)); }
void* operator new[](size_t n, std::align_val_t a) { return AllocateOrThrow(n, size_t(a)); }
void operator delete(void* p) noexcept { Free(p); }
void operator delete[](void* p) noexcept { Free(p); }
void operator delete(void* p, size_t) noexcept { Free(p); }
void operator delete[](void* p, size_t) noexcept { Free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { Free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { Free(p); }
void operator delete(void* p, std::align_val_t) noexcept { Free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { Free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { Free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { Free(p); }

extern "C" {
void* __real_calloc(size_t n, size_t size);
void* __real_aligned_alloc(size_t alignment, size_t size);
void* __real_mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset);

void* __wrap_calloc(size_t n, size_t size) {
  return msrec::Allowed(n * size) ? msrec::Counted(__real_calloc(n, size)) : nullptr;
}
void* __wrap_aligned_alloc(size_t alignment, size_t size) {
  return msrec::Allowed(size) ? msrec::Counted(__real_aligned_alloc(alignment, size)) : nullptr;
}
void* __wrap_mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (!msrec::Allowed(bytes)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return __real_mmap(at, bytes, protection, flags, file, offset);
}
}
