// SPDX-License-Identifier: Apache-2.0
//
// The pool where other programs take the CPUs.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "util/thread_pool.h"

namespace msrec {
namespace {

// Runs fn on a worker of a pool of two threads, while the caller waits for it in a task.
void OnWorker(ThreadPool* pool, const std::function<void()>& fn) {
  const auto caller = std::this_thread::get_id();
  std::atomic<int> begun{0};
  pool->ParallelFor(2, [&](int64_t) {
    ++begun;
    while (begun < 2) std::this_thread::yield();
    if (std::this_thread::get_id() != caller) fn();
  });
}

// Returns when that thread of this process sleeps, which may take a while on a busy machine.
void AwaitSleep(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
  for (;;) {
    std::string text;
    std::getline(std::ifstream(path), text);
    if (text.at(text.rfind(')') + 2) == 'S') return;  // its state is behind its name
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

int held[2];  // a pipe
std::atomic<bool> is_held{false};

void Hold(int) {
  is_held = true;
  char byte;
  while (read(held[0], &byte, 1) != 1) {
  }
}

TEST(ThreadPoolOnABusyMachine, DoesNotWaitForAWorkerThatDoesNotRun) {
  ASSERT_EQ(pipe(held), 0);
  struct sigaction hold = {}, before = {};
  hold.sa_handler = Hold;
  ASSERT_EQ(sigaction(SIGUSR1, &hold, &before), 0);
  ThreadPool pool(2);
  pthread_t worker{};
  pid_t thread = 0;
  OnWorker(&pool, [&] {
    worker = pthread_self();
    thread = static_cast<pid_t>(syscall(SYS_gettid));
  });
  AwaitSleep(thread);  // and holds no lock
  ASSERT_EQ(pthread_kill(worker, SIGUSR1), 0);
  while (!is_held) std::this_thread::yield();
  std::atomic<int64_t> sum{0};
  auto loops = std::async(std::launch::async, [&] {
    for (int i = 0; i < 10; ++i) pool.ParallelFor(20, [&](int64_t task) { sum += task; });
  });
  const auto state = loops.wait_for(std::chrono::seconds(20));
  EXPECT_EQ(write(held[1], "x", 1), 1);  // the worker goes on
  EXPECT_EQ(state, std::future_status::ready);
  loops.get();
  EXPECT_EQ(sum, 10 * 190);
  OnWorker(&pool, [&] { EXPECT_TRUE(pthread_equal(worker, pthread_self())); });
  sigaction(SIGUSR1, &before, nullptr);
  close(held[0]);
  close(held[1]);
}

cpu_set_t Cpus() {
  cpu_set_t cpus;
  EXPECT_EQ(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
  return cpus;
}

void Use(const cpu_set_t& cpus) { EXPECT_EQ(sched_setaffinity(0, sizeof(cpus), &cpus), 0); }

// A worker that slept on the caller's CPU is woken on another one, and may use all of them again.
TEST(ThreadPoolOnABusyMachine, WorkersKeepTheirCpus) {
  const cpu_set_t all = Cpus();
  ThreadPool pool(2);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    for (const cpu_set_t& own : {all, one}) {
      OnWorker(&pool, [&] {
        Use(one);
        Use(own);
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // it falls asleep there
      Use(one);
      OnWorker(&pool, [&] {
        const cpu_set_t found = Cpus();
        EXPECT_TRUE(CPU_EQUAL(&found, &own));
      });
      Use(all);
    }
    OnWorker(&pool, [&] { Use(all); });
  }
}

}  // namespace
}  // namespace msrec
