// SPDX-License-Identifier: Apache-2.0
//
// Forked children: what was made before the fork is refused there, what is made after it works.
#include "util/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "table/table.h"
#include "testing.h"
#include "workers/registry.h"

// TSan does not follow a fork out of a process with threads.
#if !defined(__SANITIZE_THREAD__)

namespace msrec {
namespace {

constexpr int kDim = 2;

[[maybe_unused]] std::shared_ptr<Registered> Made(const std::string& name) {
  TableConfig config;
  config.name = name;
  config.dim = kDim;
  return CreateTable(config);
}

[[maybe_unused]] std::vector<float> Get(Table* table, size_t n) {
  std::vector<int64_t> ids(n);
  for (size_t i = 0; i < n; ++i) ids[i] = static_cast<int64_t>(i);
  std::vector<float> out(n * kDim);
  table->Get({ids.data(), ids.size(), true}, {}, true, out.data());
  return out;
}

// What fn returns in a child; 99 where the child does not end within 20 seconds.
int InChild(const std::function<int()>& fn) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    int result = 98;
    try {
      result = fn();
    } catch (...) {
    }
    _exit(result);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

[[maybe_unused]] std::string Said(const std::function<void()>& call) {
  try {
    call();
  } catch (const ForkedProcess& error) {
    return error.what();
  }
  return "";
}

TEST(Process, AForkIsCountedInTheChildAlone) {
  const uint64_t before = ForkCount();
  const OwnerProcess owner;
  EXPECT_EQ(InChild([&] {
              if (ForkCount() != before + 1 || owner.here()) return 1;
              // A grandchild is neither.
              const OwnerProcess child;
              return InChild([&] { return owner.here() || child.here() ? 1 : 0; });
            }),
            0);
  EXPECT_EQ(ForkCount(), before);
  EXPECT_TRUE(owner.here());
}

#ifndef MSREC_SANITIZED
// The memory allocators of sanitizers may be locked in a child that is forked among allocations.
TEST(Process, AChildForkedAmongCallsIsToldAndMakesItsOwn) {
  Threads threads(3);
  const auto made = Made("process");
  Get(made->table.get(), 5000);
  std::atomic<bool> done{false};
  std::vector<std::thread> others;
  others.emplace_back([&] {
    while (!done) Get(made->table.get(), 5000);
  });
  others.emplace_back([&] {
    for (int i = 0; !done; ++i) CloseTable(Made("process other" + std::to_string(i))->id);
  });
  const pid_t parent = getpid();
  for (int round = 0; round < 40; ++round) {
    const int result = InChild([&] {
      const std::string begin = "table 'process': belongs to process " + std::to_string(parent);
      if (Said([&] { made->table->Size(); }).rfind(begin, 0) != 0) return 1;
      if (Said([&] { made->table->tiers().PrefetchWait(1); }).rfind(begin, 0) != 0) return 2;
      if (Said([&] { FindTable(made->id); }).rfind(begin, 0) != 0) return 3;
      CloseTable(made->id);
      made->table->Close();
      if (Said([&] { FindTable(made->id); }).rfind(begin, 0) != 0) return 4;
      // The name is free here, and loops have threads again.
      const auto own = Made("process");
      if (own->id == made->id) return 5;
      if (Get(own->table.get(), 20000).size() != own->table->Size() * kDim) return 6;
      ThreadPool& pool = ThreadPool::Global();
      if (pool.num_threads() != 3) return 7;
      std::mutex mutex;
      std::set<std::thread::id> ran;
      // A loop waits for no thread that has not entered it: tasks last until one has.
      for (int i = 0; i < 2000 && ran.size() < 2; ++i) {
        pool.ParallelFor(64, [&](int64_t) {
          std::this_thread::sleep_for(std::chrono::microseconds(100));
          const std::lock_guard<std::mutex> lock(mutex);
          ran.insert(std::this_thread::get_id());
        });
      }
      if (ran.size() < 2) return 8;
      CloseTable(own->id);
      return 0;
    });
    EXPECT_EQ(result, 0) << "round " << round;
  }
  done = true;
  for (auto& other : others) other.join();
  EXPECT_EQ(made->table->Size(), 5000u);
  CloseTable(made->id);
}
#endif

}  // namespace
}  // namespace msrec

#endif
