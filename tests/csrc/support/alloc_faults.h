// SPDX-License-Identifier: Apache-2.0
//
// AllocationFaults: has allocations of this thread fail, through operator new and the calls of the
// C library that the core's own memory comes from. Other threads are not disturbed, unless asked
// for.
#pragma once

#include <cstddef>

namespace msrec {

class AllocationFaults {
 public:
  // While it lives, allocation number `nth` of this thread, counted from 1, fails, and no other.
  static AllocationFaults Nth(size_t nth) { return AllocationFaults(nth, 0); }
  // While it lives, allocation number `nth` of all threads together fails, and no other.
  static AllocationFaults NthOfAllThreads(size_t nth);
  // While it lives, what this thread allocates may not be more than that many bytes at a time.
  static AllocationFaults Bytes(size_t bytes) { return AllocationFaults(0, bytes + 1); }
  ~AllocationFaults();
  AllocationFaults(const AllocationFaults&) = delete;
  AllocationFaults& operator=(const AllocationFaults&) = delete;

  // Whether an allocation has failed since the last one of these was made on this thread.
  static bool happened();
  // Number of allocations that failed so far on threads that had made none of these.
  static size_t on_other_threads();

 private:
  AllocationFaults(size_t nth, size_t bytes);
};

}  // namespace msrec
