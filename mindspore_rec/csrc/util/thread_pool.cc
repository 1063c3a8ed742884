// SPDX-License-Identifier: Apache-2.0
#include "util/thread_pool.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <utility>

#include "util/float_mode.h"

namespace msrec {
namespace {

// Bit fields of the word `gate_`.
constexpr uint64_t kInside = 0xffff;  // number of workers
constexpr uint64_t kOpen = kInside + 1;
constexpr uint64_t kLoop = 2 * kOpen;

// If there is no loop, a worker polls for the time kSpin, and then sleeps. An operator starts
// several loops within microseconds, and waking a sleeping thread takes longer than one of these
// loops. If a worker polled for much longer, MindSpore's own threads could not use the worker's
// core.
constexpr auto kSpin = std::chrono::microseconds(30);

// If workers still run a task, the caller polls for the time kWaitSpin, and then sleeps.
constexpr auto kWaitSpin = std::chrono::microseconds(300);

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Polls until done() or until `time` is over; returns whether done() was true.
template <typename Done>
bool SpinUntil(std::chrono::microseconds time, const Done& done) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  while (!done()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    CpuRelax();
  }
  return true;
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

// True while this thread runs a task. If a task calls ParallelFor, the task's thread runs the inner
// loop alone.
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
  // The pool is never destroyed, because operators may still run while the interpreter shuts down.
  // A forked child gets a new pool of the same size, because the parent's workers do not exist in
  // the child.
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
  const uint64_t seen = gate_.load() / kLoop;
  try {
    for (int i = 1; i < wanted; ++i) {
      auto worker = std::make_unique<Worker>();
      worker->thread = std::thread([this, at = worker.get(), seen] { WorkerMain(at, seen); });
      workers_.push_back(std::move(worker));
    }
  } catch (const std::exception& error) {  // the system's limits, or memory
    WarnOfFewerThreads(static_cast<int>(workers_.size()) + 1, wanted, error.what());
  }
  // Wait until all workers have touched their thread-local data. If a worker touched its
  // thread-local data for the first time inside a loop and memory ran out, the process would end.
  std::unique_lock<std::mutex> lock(mutex_);
  idle_.wait(lock, [this] { return ready_ == static_cast<int>(workers_.size()); });
  num_threads_ = static_cast<int>(workers_.size()) + 1;
}

void ThreadPool::Stop() {
  stopping_ = true;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    gate_.fetch_add(kLoop);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker->thread.join();
  workers_.clear();
  ready_ = 0;
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

void ThreadPool::WorkerMain(Worker* worker, uint64_t seen) {
  const DefaultFloatMode float_mode;  // not that of the thread which started this one
  // Access thread-local data of this library and of the C++ runtime, so that the system allocates
  // the thread-local data now.
  const_cast<volatile bool&>(inside_task) = std::uncaught_exceptions() > 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    worker->tid = static_cast<pid_t>(syscall(SYS_gettid));
    ++ready_;
  }
  idle_.notify_all();
  while (!stopping_.load(std::memory_order_relaxed)) {
    const bool changed =
        SpinUntil(kSpin, [&] { return gate_.load(std::memory_order_acquire) / kLoop != seen; });
    if (!changed) SleepUntilChanged(worker, seen);
    if (!Enter(&seen)) continue;
    RunTasks(&loop_);
    Leave();
  }
}

void ThreadPool::SleepUntilChanged(Worker* worker, uint64_t seen) {
  std::unique_lock<std::mutex> lock(mutex_);
  worker->slept_on = sched_getcpu();
  wake_.wait(lock, [&] { return gate_.load(std::memory_order_acquire) / kLoop != seen; });
  worker->slept_on = -1;
  if (!worker->kept_off) return;
  sched_setaffinity(0, sizeof(worker->cpus), &worker->cpus);
  worker->kept_off = false;
}

// If the latest loop is open, enters the loop. In any case, sets `seen` to the loop's index.
bool ThreadPool::Enter(uint64_t* seen) {
  uint64_t gate = gate_.load(std::memory_order_acquire);
  while ((gate & kOpen) != 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) break;
  }
  *seen = gate / kLoop;
  return (gate & kOpen) != 0;
}

void ThreadPool::Leave() {
  const uint64_t before = gate_.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & kInside) != 1 || (before & kOpen) != 0) return;
  std::lock_guard<std::mutex> lock(mutex_);
  idle_.notify_all();
}

// A sleeping worker must not wake up on the caller's CPU. If other programs used the remaining
// CPUs, the system would repeatedly wake the worker on the caller's CPU, and both threads would
// share that CPU.
void ThreadPool::KeepOff(Worker* worker, int cpu) {
  if (worker->kept_off || sched_getaffinity(worker->tid, sizeof(cpu_set_t), &worker->cpus) != 0) {
    return;
  }
  cpu_set_t others = worker->cpus;
  CPU_CLR(cpu, &others);
  worker->kept_off =
      CPU_COUNT(&others) > 0 && sched_setaffinity(worker->tid, sizeof(others), &others) == 0;
}

void ThreadPool::Open() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const int here = sched_getcpu();
    for (auto& worker : workers_) {
      if (here >= 0 && worker->slept_on == here) KeepOff(worker.get(), here);
    }
    gate_.fetch_add(kLoop + kOpen, std::memory_order_release);
  }
  wake_.notify_all();
}

// Waits only for workers inside the loop. A worker that enters the loop later would find no task.
void ThreadPool::Close() {
  gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
  const auto left = [&] { return (gate_.load(std::memory_order_acquire) & kInside) == 0; };
  if (SpinUntil(kWaitSpin, left)) return;
  std::unique_lock<std::mutex> lock(mutex_);
  idle_.wait(lock, left);
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
  Open();
  RunTasks(&loop_);
  Close();
  if (loop_.error) std::rethrow_exception(loop_.error);
}

}  // namespace msrec
