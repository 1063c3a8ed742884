// SPDX-License-Identifier: Apache-2.0
//
// Below: what a table has below host memory, and what is on its way between the two. A part of
// Table (table_tiers.cc, table_below.cc, table_prefetch.cc), under its mutex.
//
// A row is in one of three states:
//   here             in host memory only
//   here, with copy  in host memory, and below as it was when it came up
//   below            below only
// A training lookup brings rows up; what is over the capacity of host memory goes down through the
// queue, which shows it to readers at once. A prefetched batch is read by a thread that does not
// hold the table's mutex while it reads: keys whose rows below change meanwhile are noted as
// overtaken, and what was read of them is dropped.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tier/tier_chain.h"
#include "tier/write_behind.h"

namespace msrec {

struct LevelConfig {
  std::string kind;  // "remote" or "ssd"
  // Opens the tier for rows of that size; another generation has nothing of the one before it.
  std::function<std::shared_ptr<Tier>(size_t row_bytes, int generation)> open;
  int64_t max_rows = -1;  // what is over it goes to the next level; -1: no limit
};

struct CacheSettings {
  int64_t host_rows = -1;   // most rows in host memory; -1: no limit
  int64_t host_bytes = -1;  // the same in bytes of rows and index; -1: no limit
  bool by_count = false;  // rows of the smallest count go down first, not those of the oldest step
  std::vector<LevelConfig> levels;
};

// A batch that is to be used soon.
struct Fetch {
  int64_t number = 0;
  std::vector<int64_t> ids;
  bool ready = false;
  bool cancelled = false;  // the table was cleared or laid out anew
  std::exception_ptr error;
  std::vector<int64_t> absent;     // sorted: keys without a row below
  std::vector<int64_t> overtaken;  // keys whose rows below changed since they were read
  size_t sorted = 0;               // of overtaken, the first so many

  bool Overtaken(int64_t key) {
    if (sorted != overtaken.size()) {
      std::sort(overtaken.begin(), overtaken.end());
      sorted = overtaken.size();
    }
    return std::binary_search(overtaken.begin(), overtaken.end(), key);
  }
};

struct Below {
  // Rows on their way down that are held in memory before a step has to wait.
  static constexpr size_t kQueueBytes = size_t{64} << 20;
  static constexpr size_t kPartRows = 16384;  // rows of one write

  CacheSettings settings;
  int generation = 0;
  std::shared_ptr<TierChain> chain;  // null until it is first needed
  std::shared_ptr<WriteBehind> queue;
  int64_t rows = 0;  // keys whose only row is below
  uint16_t serial = 1;
  // Queues in front of tiers whose rows nobody reads any more, of a layout before this one or one
  // that never came to be: each holds nothing but that its tier is to be cleared, and tries so by
  // itself. Flush and the next layout wait for them.
  std::vector<std::shared_ptr<WriteBehind>> stale;

  // The sweep of rows that are due, or too many.
  std::unique_ptr<TierScan> sweep;
  bool sweeping = false;  // with Eviction::on_trigger: not all rows have been looked at

  // Prefetching. The thread starts with the first batch.
  std::thread thread;
  std::condition_variable wake;   // the thread
  std::condition_variable ready;  // those who wait for a batch
  std::deque<std::shared_ptr<Fetch>> queued;
  std::map<int64_t, std::shared_ptr<Fetch>> fetches;  // not released yet
  int64_t next_fetch = 1;
  bool stop = false;
  int waiters = 0;  // calls that wait on ready, and look at this when they wake

  uint64_t asked = 0;             // distinct keys of training lookups
  uint64_t host_hits = 0;         // of which were in host memory
  uint64_t host_misses = 0;       // of which had to be read from below by the lookup itself
  uint64_t prefetched = 0;        // rows that prefetching brought up
  uint64_t written_down = 0;      // rows that left host memory
  uint64_t failed_evictions = 0;  // times that a tier has put off a part of a step's eviction
  double lookup_wait = 0.0;       // seconds that lookups waited for rows from below
  double prefetch_wait = 0.0;

  uint16_t NextSerial() {
    serial = static_cast<uint16_t>(serial % 0x7fff + 1);
    return serial;
  }
};

}  // namespace msrec
