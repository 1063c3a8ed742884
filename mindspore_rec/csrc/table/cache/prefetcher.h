// SPDX-License-Identifier: Apache-2.0
//
// Prefetcher: promotes the rows of batches that will be looked up soon. A thread of the table makes
// the keys of a batch unique and reads rows from lower tiers without the table's mutex. The thread
// then puts the rows into host memory, where the rows stay until the batch is released. Rows that
// changed after the read are dropped (Fetches). There are two threads: one reads while the other
// makes keys unique or promotes, so that a slow disk is always busy. The threads start with the
// first batch.
//
// Methods run under the table's mutex. Methods with a `lock` argument release the lock while they
// wait.
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
  // Requires: all arguments outlive this object. After Add, Stop must be called before the
  // destructor.
  Prefetcher(UpperTier* upper, LowerTiers* tiers, HostRows* host)
      : upper_(*upper), tiers_(*tiers), host_(*host) {}

  // Add a batch and return its number. Throws std::invalid_argument if too many batches are not
  // released, std::runtime_error if no thread can be started.
  int64_t Add(const IdView& ids);
  // Wait until the rows of the batch are in host memory; return the seconds of waiting. If the
  // prefetch failed, throws its exception and releases the batch. Throws TableClosed if the table
  // is closed meanwhile, std::invalid_argument if there is no such batch.
  double Wait(int64_t number, std::unique_lock<std::mutex>* lock);
  // Release that batch and all earlier batches. Throws std::invalid_argument if there never was
  // such a batch.
  void Release(int64_t number);
  // End the waiting calls and the threads. The table must be closed already.
  void Stop(std::unique_lock<std::mutex>* lock);

  // Number of promoted rows, and seconds of waiting in Wait.
  uint64_t promoted() const { return promoted_; }
  double waited() const { return waited_; }

 private:
  static constexpr size_t kThreads = 2;

  // Start the threads that do not run. Throws std::runtime_error if no thread can be started.
  void StartThreads();
  void Main();
  void FetchRows(std::unique_lock<std::mutex>* lock, Fetch* fetch, Batch* batch);
  // Promote each row that has not changed since the read.
  void PromoteRead(Fetch* fetch, const std::vector<int64_t>& keys, const std::vector<char>& rows,
                   const bool* found);

  UpperTier& upper_;
  LowerTiers& tiers_;
  HostRows& host_;
  std::array<std::thread, kThreads> threads_;
  std::condition_variable wake_;   // the threads
  std::condition_variable ready_;  // those who wait for a batch
  std::deque<std::shared_ptr<Fetch>> queued_;
  int64_t next_number_ = 1;
  bool stop_ = false;
  int waiters_ = 0;  // calls that wait on ready_, and look at this when they wake
  uint64_t promoted_ = 0;
  double waited_ = 0.0;
};

}  // namespace msrec
