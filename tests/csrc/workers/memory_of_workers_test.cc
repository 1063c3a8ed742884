// SPDX-License-Identifier: Apache-2.0
//
// A worker that has no memory for what it is about to receive: all throw, none waits for it.
#include <gtest/gtest.h>

#include "alloc_faults.h"
#include "worker_testing.h"

namespace msrec {
namespace {

constexpr int kWorkers = 3;
constexpr int kDim = 4;
constexpr double kLimit = 5.0;  // seconds that a worker would wait for one that has given up

TEST(MemoryOfWorkers, WhateverCannotBeAllocatedFailsOnAllOrOnNone) {
  int failed = 0, worked = 0;
  for (size_t most = 1000; most < 80000; most += most / 8) {
    Workers workers(kWorkers, {NormalConfig("memory", kDim)}, RuleOf(RuleKind::kSgd), kLimit);
    const auto look_up = [&](int r, int64_t n) {
      const auto ids = Range(r, r + n);
      std::vector<float> out(ids.size() * kDim);
      if (r == 1 && n > 5) {
        const auto faults = AllocationFaults::Bytes(most);
        workers.table(r).LookupTrain(View(ids), {}, out.data());
      } else {
        workers.table(r).LookupTrain(View(ids), {}, out.data());
      }
    };
    workers.Run([&](int r) { look_up(r, 5); });
    const auto errors = workers.Try([&](int r) { look_up(r, 1500); });
    const bool fails = !errors[1].empty();
    for (int r = 0; r < kWorkers; ++r) {
      EXPECT_EQ(!errors[r].empty(), fails) << "at most " << most << " bytes, worker " << r;
      EXPECT_EQ(errors[r].find("waited"), std::string::npos) << errors[r];
    }
    ++(fails ? failed : worked);
    workers.Run([&](int r) { look_up(r, 5); });
  }
  EXPECT_GT(failed, 5);
  EXPECT_GT(worked, 5);
}

}  // namespace
}  // namespace msrec
