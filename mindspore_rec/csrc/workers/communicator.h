// SPDX-License-Identifier: Apache-2.0
//
// Messages between the workers of a job: processes started together, each with a rank in
// [0, size). A channel is one communicator of each worker; its collective calls are made by all
// workers in the same order, by one thread of each at a time. Every wait has a limit.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace msrec {

// A failure between workers. The message begins with the rank, and names what was waited for.
struct WorkerError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr double kDefaultWaitLimit = 300;  // seconds

// Names the exchange that the calling thread is in while the scope lives, for messages and reports
// of workers that hang. Scopes nest: the innermost counts. Both texts must outlive it.
class ExchangeScope {
 public:
  explicit ExchangeScope(const char* what, const char* table = "");
  ~ExchangeScope();
  ExchangeScope(const ExchangeScope&) = delete;
  ExchangeScope& operator=(const ExchangeScope&) = delete;

  // Returns the name of this thread's exchange, "keys of table 'user'"; "" outside of any scope.
  static std::string Text();

 private:
  const char* what_;
  const char* table_;
  ExchangeScope* outer_;
};

// One message from a worker to another.
struct WorkerMessage {
  int from = 0;
  int tag = 0;
  std::string data;
};

// Counts of a channel's collective calls since it was made.
struct ChannelStatistics {
  uint64_t calls = 0;
  uint64_t bytes_sent = 0;      // to other workers
  uint64_t bytes_received = 0;  // from other workers
  double seconds = 0;           // in the calls: waiting for others and moving bytes
};

// Returns "worker 1 of 4: ", the beginning of messages.
std::string WorkerPrefix(int rank, int size);

class Communicator {
 public:
  static constexpr int kAny = -1;
  // Largest tag of a message.
  static constexpr int kMaxTag = 16383;

  Communicator(int rank, int size, std::string name);
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }

  // Seconds after which a wait throws WorkerError. Afterwards the channel is of no more use.
  double wait_limit() const { return wait_limit_.load(std::memory_order_relaxed); }
  void set_wait_limit(double seconds) { wait_limit_.store(seconds, std::memory_order_relaxed); }

  ChannelStatistics statistics() const;

  // Returns whether a collective call is under way. From any thread.
  bool busy() const { return busy_.load(); }

  // Returns what a call has been waiting for for a while, "" where none is. From any thread.
  std::string waiting() const;

  // Give the channel up, because this worker cannot go on as the others expect: they fail too
  // instead of waiting, or the job ends with this sentence.
  void GiveUp(const char* why) { DoGiveUp(why); }

  // Collective calls. Sizes are in bytes and have no limit. Memory of send and receive must not
  // overlap. A call that runs out of memory gives the channel up.

  // Sends part r of `send` to worker r, and receives the parts for this worker into `recv`,
  // worker 0's part first. Both are `size()` parts one after another, of the sizes given; the bytes
  // that worker a sends to b must be as many as b expects of a. A worker's own part is copied.
  void AllToAllV(const void* send, const size_t* send_bytes, void* recv, const size_t* recv_bytes);
  // Writes the `bytes` bytes of each worker to `all`, worker 0's bytes first.
  void AllGather(const void* mine, size_t bytes, void* all);
  // Writes the all_bytes[r] bytes of each worker r to `all`, worker 0's bytes first. `mine` has
  // all_bytes[rank()] bytes, and may be their place in `all`.
  void AllGatherV(const void* mine, void* all, const size_t* all_bytes);
  // Returns when all workers have called it.
  void Barrier();

  // Single messages, from any thread, beside collective calls too. A message is received once, by
  // one thread; messages of one sender and tag arrive in the order in which they were sent.

  // Sends to another worker or to itself. Copies the data and returns at once.
  void Send(int to, int tag, const void* data, size_t bytes);
  // Receives a message of the tag, from a worker or from kAny, if one has come.
  std::optional<WorkerMessage> TryReceive(int from, int tag);
  // Waits for a message of the tag, from a worker or from kAny.
  WorkerMessage Receive(int from, int tag);

 protected:
  // Throws WorkerError: this worker waited for the missing ones in vain.
  [[noreturn]] void TimedOut(double seconds, const std::vector<int>& missing) const;
  // Returns "waited 5 s for worker 1 on channel 'step', to exchange keys of table 'user'".
  std::string WaitText(double seconds, const std::vector<int>& missing) const;
  std::string Me() const { return WorkerPrefix(rank_, size_); }
  // Sets the text that `waiting` returns.
  void SetWaiting(std::string text);

 private:
  class CollectiveCall;

  virtual void DoAllToAllV(const char* send, const size_t* send_bytes, char* recv,
                           const size_t* recv_bytes) = 0;
  virtual void DoAllGatherV(const char* mine, char* all, const size_t* all_bytes) = 0;
  virtual void DoBarrier() = 0;
  // Does not return, or returns and lets every other worker's call on the channel fail.
  virtual void DoGiveUp(const char* why) = 0;
  virtual void DoSend(int to, int tag, const char* data, size_t bytes) = 0;
  virtual std::optional<WorkerMessage> DoTryReceive(int from, int tag) = 0;

  // Call fn, and give the channel up where it runs out of memory.
  template <typename Fn>
  void OrGiveUp(const Fn& fn);

  void CheckTag(int tag) const;
  void CheckRank(int rank) const;

  const int rank_;
  const int size_;
  const std::string name_;
  std::atomic<double> wait_limit_{kDefaultWaitLimit};
  std::atomic<bool> busy_{false};
  std::vector<size_t> equal_bytes_;  // of AllGather, by worker
  mutable std::mutex waiting_mutex_;
  std::string waiting_;
  std::atomic<uint64_t> calls_{0}, bytes_sent_{0}, bytes_received_{0}, nanoseconds_{0};
};

// Returns the bytes of all workers, of any length each, worker 0's bytes first. Collective.
std::vector<std::string> GatherBytes(Communicator& channel, const std::string& mine);

}  // namespace msrec
