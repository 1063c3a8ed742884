// SPDX-License-Identifier: Apache-2.0
#include "util/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

#include "testing.h"

namespace msrec {
namespace {

// Every task exactly once, and what tasks wrote is seen by the caller without further ado.
void RunOnce(ThreadPool* pool, int64_t tasks) {
  std::vector<int> runs(tasks);
  pool->ParallelFor(tasks, [&](int64_t task) { ++runs[task]; });
  for (const int n : runs) ASSERT_EQ(n, 1);
}

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.num_threads(), threads);
    for (const int64_t tasks : {0, 1, 2, 7, 64, 1000}) {
      for (int repeat = 0; repeat < 50; ++repeat) ASSERT_NO_FATAL_FAILURE(RunOnce(&pool, tasks));
    }
  }
}

TEST(ThreadPool, WorksAfterItsWorkersWentToSleep) {
  ThreadPool pool(3);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ASSERT_NO_FATAL_FAILURE(RunOnce(&pool, 10));
  }
}

TEST(ThreadPool, FewerThanOneThreadIsOne) {
  ThreadPool pool(-3);
  EXPECT_EQ(pool.num_threads(), 1);
  pool.SetNumThreads(0);
  EXPECT_EQ(pool.num_threads(), 1);
  RunOnce(&pool, 5);
}

TEST(ThreadPool, RethrowsAnExceptionAndGoesOn) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int repeat = 0; repeat < 100; ++repeat) {
      std::atomic<int> running{0};
      try {
        pool.ParallelFor(64, [&](int64_t task) {
          ++running;
          if (task % 16 == 7) {
            --running;
            throw std::runtime_error("task " + std::to_string(task));
          }
          --running;
        });
        FAIL() << "no exception";
      } catch (const std::runtime_error& e) {
        EXPECT_EQ(std::string(e.what()).substr(0, 5), "task ");
      }
      ASSERT_EQ(running, 0) << "started tasks have ended";
      ASSERT_NO_FATAL_FAILURE(RunOnce(&pool, 20));
    }
  }
}

TEST(ThreadPool, ALoopInsideATaskRunsThere) {
  ThreadPool pool(3);
  std::atomic<int> sum{0};
  pool.ParallelFor(10, [&](int64_t) {
    const auto outer = std::this_thread::get_id();
    pool.ParallelFor(10, [&](int64_t inner) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      pool.ParallelFor(2, [&](int64_t) { sum += static_cast<int>(inner); });
    });
  });
  EXPECT_EQ(sum, 10 * 2 * 45);
  EXPECT_THROW(
      pool.ParallelFor(
          4, [&](int64_t) { pool.ParallelFor(4, [](int64_t) { throw std::bad_alloc(); }); }),
      std::bad_alloc);
}

TEST(ThreadPool, SeveralCallersAndAChangingSize) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) pool.ParallelFor(20, [&](int64_t task) { sum += task; });
    });
  }
  std::thread sizer([&] {
    for (int i = 0; !done; ++i) pool.SetNumThreads(1 + i % 4);
  });
  for (auto& caller : callers) caller.join();
  done = true;
  sizer.join();
  EXPECT_EQ(sum, 4 * 500 * 190);
}

// TSan does not follow a fork out of a process with threads.
#if !defined(__SANITIZE_THREAD__)
TEST(ThreadPool, AForkedChildRunsLoopsByItself) {
  // Never destroyed: the child could not join the workers.
  static ThreadPool& pool = *new ThreadPool(3);
  RunOnce(&pool, 100);
  const pid_t child = fork();
  if (child == 0) {
    int sum = 0;  // plain: everything runs on this thread
    pool.ParallelFor(100, [&](int64_t task) { sum += static_cast<int>(task); });
    pool.SetNumThreads(2);
    pool.ParallelFor(100, [&](int64_t task) { sum += static_cast<int>(task); });
    _exit(sum == 2 * 4950 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  RunOnce(&pool, 100);
  pool.SetNumThreads(1);  // for leak checkers: threads end
}
#endif

}  // namespace
}  // namespace msrec
