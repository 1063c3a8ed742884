// SPDX-License-Identifier: Apache-2.0
//
// A small thread pool for parallel loops inside one operator. MindSpore runs independent operators
// one after another, so all parallelism of the table comes from this pool.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "util/process.h"

namespace msrec {

class ThreadPool {
 public:
  // Returns the process-wide pool. The initial size of the pool is the value of
  // MINDSPORE_REC_NUM_THREADS, at most 1024. If MINDSPORE_REC_NUM_THREADS is not set or is below 1,
  // the size is the number of CPUs that this process may use.
  static ThreadPool& Global();

  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs fn(task) once for every task in [0, num_tasks) on the caller and the workers, and returns
  // when all tasks are done. A task may run on the caller or on any worker, and the task's result
  // must not depend on the thread. The first exception of a task is rethrown after every started
  // task has ended; tasks that have not started are skipped. Any thread may call ParallelFor. The
  // caller runs all tasks alone in four cases: another call is in progress; the call is made inside
  // a task; the calling thread has an object of the class Alone; or the process is a forked child
  // of the process that created the pool. Tasks always compute in the default float mode,
  // independent of the caller's mode.
  void ParallelFor(int64_t num_tasks, const std::function<void(int64_t)>& fn);

  // While an object of the class Alone exists, all loops of the thread that created the object use
  // only this thread. A thread that does background work uses Alone to leave the pool's workers to
  // the operators.
  class Alone {
   public:
    Alone();
    ~Alone();
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;
  };

  // Number of threads that work on a loop, including the caller, at least 1. If the system allows
  // fewer threads than requested, the pool has fewer threads, and reports this once on stderr.
  int num_threads() const { return num_threads_.load(std::memory_order_relaxed); }

  // Waits until the running loop has ended, then changes the size of the pool. A size below 1 means
  // 1. In a forked child of the process that created the pool, SetNumThreads has no effect.
  void SetNumThreads(int num_threads);

 private:
  struct Loop {
    const std::function<void(int64_t)>* fn = nullptr;
    int64_t num_tasks = 0;
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error;
    std::mutex error_mutex;
  };

  struct Worker {
    std::thread thread;
    pid_t tid = 0;
    // Members guarded by mutex_.
    int slept_on = -1;      // the CPU on which it sleeps; -1 while it is awake
    bool kept_off = false;  // whether it may not use that one now
    cpu_set_t cpus;         // then: those that it may use otherwise
  };

  void Start(int num_threads);
  void Stop();
  void WorkerMain(Worker* worker, uint64_t seen);
  void SleepUntilChanged(Worker* worker, uint64_t seen);
  static void KeepOff(Worker* worker, int cpu);
  void Open();                 // lets workers enter the loop
  void Close();                // lets no more enter, and waits for those inside
  bool Enter(uint64_t* seen);  // returns whether a loop is open
  void Leave();
  static void RunTasks(Loop* loop);

  std::atomic<int> num_threads_{1};
  const OwnerProcess owner_;
  std::mutex caller_mutex_;  // one loop at a time

  // Three bit fields: the loop's index, a flag that is set while the loop is open, and the number
  // of workers inside the loop. Only workers inside the loop use loop_.
  std::atomic<uint64_t> gate_{0};
  std::mutex mutex_;  // held to fall asleep and to wake
  std::condition_variable wake_;
  std::condition_variable idle_;
  int ready_ = 0;  // workers with thread-local data; guarded by mutex_
  std::atomic<bool> stopping_{false};
  Loop loop_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace msrec
