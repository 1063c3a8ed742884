// SPDX-License-Identifier: Apache-2.0
//
// A system that gives no more threads. Not for sanitizers, which start threads in ways of their
// own.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>

namespace msrec {

// While one lives, no thread can be started: each would have a stack larger than the address
// space.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    EXPECT_EQ(pthread_attr_setstacksize(&attributes, size_t{1} << 50), 0);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
  }
  ~NoMoreThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

}  // namespace msrec
