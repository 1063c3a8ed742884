// SPDX-License-Identifier: Apache-2.0
#include "util/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "util/float_mode.h"

namespace msrec {
namespace {

// A worker polls this long for the next loop before it sleeps: an operator starts several loops
// within microseconds, and waking a sleeping thread costs more than such a loop. Longer would take
// the core away from MindSpore's own threads.
constexpr auto kSpin = std::chrono::microseconds(30);

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int DefaultThreads() {
  if (const char* text = std::getenv("MINDSPORE_REC_NUM_THREADS")) {
    const int n = std::atoi(text);
    if (n >= 1) return std::min(n, 1024);
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

// True while this thread runs a task: a loop inside a task runs inline.
thread_local bool inside_task = false;
thread_local int alone = 0;  // scopes of ThreadPool::Alone

void WarnOfFewerThreads(int got, int wanted, const char* why) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  std::fprintf(stderr,
               "mindspore_rec: only %d of %d threads could be started (%s); going on with those. "
               "Look at ulimit -u, ulimit -v and the pids limit of the container, or set "
               "MINDSPORE_REC_NUM_THREADS.\n",
               got, wanted, why);
}

}  // namespace

ThreadPool::Alone::Alone() { ++alone; }
ThreadPool::Alone::~Alone() { --alone; }

ThreadPool& ThreadPool::Global() {
  // Never destroyed: operators may still run while the interpreter shuts down. A forked child has
  // one of its own, of the same size: the parent's has no workers there.
  static std::atomic<ThreadPool*> global{nullptr};
  ThreadPool* pool = global.load(std::memory_order_acquire);
  if (pool != nullptr && pool->owner_.here()) return *pool;
  auto* made = new ThreadPool(pool != nullptr ? pool->num_threads() : DefaultThreads());
  if (global.compare_exchange_strong(pool, made, std::memory_order_acq_rel)) return *made;
  delete made;  // another thread was first
  return *pool;
}

ThreadPool::ThreadPool(int num_threads) { Start(num_threads); }

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Start(int num_threads) {
  const int wanted = std::max(1, num_threads);
  stopping_ = false;
  const uint64_t seen = generation_.load();
  try {
    for (int i = 1; i < wanted; ++i) workers_.emplace_back([this, seen] { WorkerMain(seen); });
  } catch (const std::exception& error) {  // the system's limits, or memory
    WarnOfFewerThreads(static_cast<int>(workers_.size()) + 1, wanted, error.what());
  }
  num_threads_ = static_cast<int>(workers_.size()) + 1;
}

void ThreadPool::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadPool::SetNumThreads(int num_threads) {
  std::lock_guard<std::mutex> lock(caller_mutex_);
  if (std::max(1, num_threads) == num_threads_ || !owner_.here()) return;
  Stop();
  Start(num_threads);
}

void ThreadPool::RunTasks(Loop* loop) {
  inside_task = true;
  while (!loop->failed.load(std::memory_order_relaxed)) {
    const int64_t task = loop->next.fetch_add(1, std::memory_order_relaxed);
    if (task >= loop->num_tasks) break;
    try {
      (*loop->fn)(task);
    } catch (...) {
      std::lock_guard<std::mutex> lock(loop->error_mutex);
      if (!loop->error) loop->error = std::current_exception();
      loop->failed = true;
    }
  }
  inside_task = false;
}

void ThreadPool::WorkerMain(uint64_t seen) {
  const DefaultFloatMode float_mode;  // not that of the thread which started this one
  for (;;) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    while (generation_.load(std::memory_order_acquire) == seen &&
           std::chrono::steady_clock::now() < deadline) {
      CpuRelax();
    }
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_relaxed) != seen; });
      seen = generation_.load(std::memory_order_relaxed);
      if (stopping_) return;
    }
    RunTasks(&loop_);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      std::lock_guard<std::mutex> lock(mutex_);
      idle_.notify_all();
    }
  }
}

void ThreadPool::ParallelFor(int64_t num_tasks, const std::function<void(int64_t)>& fn) {
  if (num_tasks <= 0) return;
  const DefaultFloatMode float_mode;
  std::unique_lock<std::mutex> caller(caller_mutex_, std::defer_lock);
  const bool serial =
      num_tasks == 1 || inside_task || alone > 0 || num_threads() == 1 || !owner_.here();
  if (serial || !caller.try_lock()) {
    for (int64_t task = 0; task < num_tasks; ++task) fn(task);
    return;
  }
  loop_.fn = &fn;
  loop_.num_tasks = num_tasks;
  loop_.next = 0;
  loop_.failed = false;
  loop_.error = nullptr;
  running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  RunTasks(&loop_);
  const auto deadline = std::chrono::steady_clock::now() + kSpin * 10;
  while (running_.load(std::memory_order_acquire) != 0 &&
         std::chrono::steady_clock::now() < deadline) {
    CpuRelax();
  }
  {
    // Also taken when the spin saw zero: the last worker may still be about to notify under the
    // lock.
    std::unique_lock<std::mutex> lock(mutex_);
    idle_.wait(lock, [&] { return running_.load(std::memory_order_acquire) == 0; });
  }
  if (loop_.error) std::rethrow_exception(loop_.error);
}

}  // namespace msrec
