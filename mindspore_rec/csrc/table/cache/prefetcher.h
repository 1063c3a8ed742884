// SPDX-License-Identifier: Apache-2.0
//
// Prefetcher: promotes the rows of batches that will be looked up soon. A prefetcher thread makes
// the keys of a batch unique and reads rows from lower tiers without the table's mutex. The thread
// then promotes the rows to host memory. The rows stay in host memory until the batch is released,
// unless a step needs the memory for other rows. If a row changes after the thread has read the
// row, the thread drops the outdated copy (Fetches). To keep a slow disk busy, two threads are
// used: while one thread reads rows, the other thread makes keys unique or promotes rows. The
// threads are started when the first batch is added.
//
// The caller must hold the table's mutex. A method with an argument `lock` releases the lock while
// the method waits.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "rows/batch.h"
#include "table/cache/host_rows.h"
#include "table/cache/lower_tiers.h"
#include "table/core/upper_tier.h"

namespace msrec {

class Prefetcher {
 public:
  // Requires: all arguments outlive this object. If Add was called, Stop must also be called before
  // the object is destroyed.
  Prefetcher(UpperTier* upper, LowerTiers* tiers, HostRows* host)
      : upper_(*upper), tiers_(*tiers), host_(*host) {}

  // Add a batch and return its number. Throws std::invalid_argument if too many batches are not
  // released yet. Throws std::runtime_error if no thread can be started.
  int64_t Add(const IdView& ids);
  // Wait until the prefetch of the batch has ended; return the time of the wait in seconds. If the
  // prefetch failed, throws the exception of the prefetch and releases the batch. Throws
  // TableClosed if the table is closed during the wait. Throws std::invalid_argument if no batch
  // has this number.
  double Wait(int64_t number, std::unique_lock<std::mutex>* lock);
  // Release the batch with number `number` and all earlier batches. Throws std::invalid_argument if
  // no batch ever had this number.
  void Release(int64_t number);
  // End the threads, and make all calls of Wait return. Requires: the table is closed.
  void Stop(std::unique_lock<std::mutex>* lock);

  // Return the number of promoted rows, and the total time of all waits in seconds.
  uint64_t promoted() const { return promoted_; }
  double waited() const { return waited_; }

 private:
  static constexpr size_t kThreads = 2;

  // Start the threads that are not running yet. Throws std::runtime_error if no thread can be
  // started.
  void StartThreads();
  void Main();
  void FetchRows(std::unique_lock<std::mutex>* lock, Fetch* fetch, Batch* batch);
  // Promote each row that has not changed since it was read.
  void PromoteRead(Fetch* fetch, const std::vector<int64_t>& keys, const std::vector<char>& rows,
                   const bool* found);

  UpperTier& upper_;
  LowerTiers& tiers_;
  HostRows& host_;
  std::array<std::thread, kThreads> threads_;
  std::condition_variable wake_;   // wakes the threads
  std::condition_variable ready_;  // wakes the calls that wait for a batch
  std::deque<std::shared_ptr<Fetch>> queued_;
  int64_t next_number_ = 1;
  bool stop_ = false;
  int waiters_ = 0;  // calls that wait on ready_, and read this object when they wake up
  uint64_t promoted_ = 0;
  double waited_ = 0.0;
};

}  // namespace msrec
