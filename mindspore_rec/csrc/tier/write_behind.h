// SPDX-License-Identifier: Apache-2.0
//
// WriteBehind: a queue in front of a tier. Read sees writes and erasures at once; a background
// thread passes them to the tier in order. Nothing leaves the queue before the tier has it: when
// the tier fails, the queue keeps the rows and tries again, every second and whenever a caller
// waits for room.
//
// In a forked child it must be neither used nor destroyed: its thread stayed with the parent. One
// thread at a time may call Write, Erase, Drain, Flush and Clear; any thread Read.
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
  // Writers wait while the queue holds more than about max_bytes.
  WriteBehind(std::shared_ptr<Tier> tier, size_t max_bytes);
  ~WriteBehind();  // drops what is still queued: call Drain first

  // Queue rows, or erasures. Keys must be distinct. Wait while the queue is full; if the tier fails
  // meanwhile, throw its error and take nothing.
  void Write(std::vector<int64_t> keys, std::vector<char> rows);
  void Erase(std::vector<int64_t> keys);

  // As Tier::Read and Tier::Contains, over queue and tier together.
  void Read(const int64_t* keys, size_t n, char* rows, bool* found);
  void Contains(const int64_t* keys, size_t n, bool* found);

  // Waits until the queue is empty; throws the tier's error.
  void Drain();
  // Calls Drain and Tier::Flush.
  void Flush();
  // Erases every row. Readers see it at once; the tier is cleared in the background, in its turn of
  // the queue, and Drain waits for it. Throws std::bad_alloc, and has then done nothing.
  void Clear();

  // Stops the background thread for its lifetime: a walk over the tier then finds each row once,
  // there or in waiting(). The thread that holds it must not wait for the queue.
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
  // The queued changes: each key's newest row, null where it is erased.
  struct Waiting {
    std::vector<std::shared_ptr<const Part>> parts;  // own the rows
    std::map<int64_t, const char*> rows;  // sorted, so that walks do not depend on hashing
    bool cleared = false;                 // rows that only the tier has are erased
  };
  Waiting waiting() const;

 private:
  void Push(std::shared_ptr<Part> part);
  // Under the lock: waits until fn() holds, throws when the tier failed since the call.
  template <typename Fn>
  void WaitFor(std::unique_lock<std::mutex>* lock, Fn fn);
  void WriterMain();
  // For keys that the queue knows: found and rows (may be null) are set, and known[i] is true.
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
