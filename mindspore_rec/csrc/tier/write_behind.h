// SPDX-License-Identifier: Apache-2.0
//
// WriteBehind: a queue in front of a tier. The results of Read include queued writes and erasures.
// A background thread passes the queued changes to the tier in order. A change leaves the queue
// after it was made in the tier; only Clear and the destructor drop changes. If the tier fails, the
// queue keeps the rows and tries again every second, and whenever a caller waits for room.
//
// A forked child must neither use nor destroy its parent's queue, because the background thread
// exists only in the parent. One thread at a time may call Write, Erase, Drain, Flush and Clear;
// any thread may call Read.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tier/tier.h"
#include "util/key_set.h"

namespace msrec {

class WriteBehind {
 public:
  // Writers wait while the queue contains more than about max_bytes bytes.
  WriteBehind(std::shared_ptr<Tier> tier, size_t max_bytes);
  ~WriteBehind();  // drops what is still queued: call Drain first

  // Queue rows or erasures. Keys must be distinct. Wait while the queue is full. If the tier fails
  // during the wait, throw the tier's error and queue nothing.
  void Write(std::vector<int64_t> keys, std::vector<char> rows);
  void Erase(std::vector<int64_t> keys);

  // Do the same as Tier::Read and Tier::Contains, but for the queue and the tier together.
  void Read(const int64_t* keys, size_t n, char* rows, bool* found);
  void Contains(const int64_t* keys, size_t n, bool* found);

  // Waits until the queue is empty; throws the tier's error.
  void Drain();
  // Calls Drain and Tier::Flush.
  void Flush();
  // Erases every row. After Clear has returned, Read finds no rows. Clear drops the changes that
  // are still queued. The background thread first ends the change in progress, and then clears the
  // tier. Drain waits until the tier is cleared. If Clear throws std::bad_alloc, nothing has
  // changed.
  void Clear();

  // While a Pause exists, the background thread is stopped. During a Pause, the rows of the tier do
  // not change. waiting() returns the queued changes, which are newer than the tier's rows of the
  // same keys. A thread that has created a Pause must not wait for the queue.
  class Pause {
   public:
    explicit Pause(WriteBehind* queue);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    WriteBehind* const queue_;
  };

  Tier& tier() { return *tier_; }
  size_t waiting_rows() const;

 private:
  struct Part {
    std::vector<int64_t> keys;
    std::vector<char> rows;  // none: the keys are erased
    bool clears = false;     // all rows are erased, and there are no keys
    KeySet set;
    size_t bytes() const { return keys.size() * sizeof(int64_t) + rows.size(); }
  };

 public:
  // The queued changes: a pointer to each key's newest row, or null if the key is erased.
  struct Waiting {
    std::vector<std::shared_ptr<const Part>> parts;  // own the rows
    std::map<int64_t, const char*> rows;  // sorted, so that walks do not depend on hashing
    bool cleared = false;                 // rows that only the tier has are erased
  };
  Waiting waiting() const;

 private:
  void Push(std::shared_ptr<Part> part);
  // Waits until fn() is true. Throws if the tier fails during the wait. Requires that `lock` is
  // locked.
  template <typename Fn>
  void WaitFor(std::unique_lock<std::mutex>* lock, Fn fn);
  void WriterMain();
  // Sets known[i] to true for each key in the queue. For these keys, also sets found[i] and copies
  // the row, if any, to `rows`. `rows` may be null.
  void ReadQueue(const int64_t* keys, size_t n, char* rows, bool* found, bool* known) const;
  template <typename Below>
  void ReadBoth(const int64_t* keys, size_t n, char* rows, bool* found, Below below);

  const std::shared_ptr<Tier> tier_;
  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;  // the writer
  std::condition_variable done_;  // those who wait for it
  std::deque<std::shared_ptr<Part>> parts_;
  size_t bytes_ = 0;
  bool busy_ = false;  // the writer works on the first part
  bool moot_ = false;  // and that part need not succeed: all is cleared after it
  int pauses_ = 0;
  bool hurry_ = false;
  bool stop_ = false;
  uint64_t failures_ = 0;
  std::exception_ptr error_;
  std::thread writer_;
};

}  // namespace msrec
