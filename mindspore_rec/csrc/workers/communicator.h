// SPDX-License-Identifier: Apache-2.0
//
// Messages between the workers of a job: processes that start together, each with a rank in [0,
// size). A channel has one communicator on each worker. All workers make the collective calls of a
// channel in the same order. On each worker, only one thread at a time makes collective calls.
// Every wait has a time limit (wait_limit).
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

// Thrown if the workers cannot continue together, for example after a timeout. After a timeout, the
// message begins with this worker's rank, and names the exchange that was waiting.
struct WorkerError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr double kDefaultWaitLimit = 300;  // seconds

// Sets the name of the exchange that the calling thread runs. While this object exists, error
// messages and reports of hanging workers contain the name. If scopes are nested, the name of the
// innermost scope is used. The strings `what` and `table` must outlive the scope.
class ExchangeScope {
 public:
  explicit ExchangeScope(const char* what, const char* table = "");
  ~ExchangeScope();
  ExchangeScope(const ExchangeScope&) = delete;
  ExchangeScope& operator=(const ExchangeScope&) = delete;

  // Returns the name of this thread's exchange, such as "keys of table 'user'"; "" outside any
  // scope.
  static std::string Text();

 private:
  const char* what_;
  const char* table_;
  ExchangeScope* outer_;
};

// One message from one worker to another.
struct WorkerMessage {
  int from = 0;
  int tag = 0;
  std::string data;
};

// Statistics of a channel's collective calls since the channel's creation.
struct ChannelStatistics {
  uint64_t calls = 0;
  uint64_t bytes_sent = 0;      // to other workers
  uint64_t bytes_received = 0;  // from other workers
  double seconds = 0;           // in the calls: waiting for others and moving bytes
};

// Returns the beginning of a message, for example "worker 1 of 4: ".
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

  // Seconds after which a wait fails. If a wait for a single message exceeds the limit, the wait
  // throws WorkerError. If a collective call exceeds the limit, the call throws WorkerError and
  // makes the channel unusable, or ends the whole job (MpiCommunicator).
  double wait_limit() const { return wait_limit_.load(std::memory_order_relaxed); }
  void set_wait_limit(double seconds) { wait_limit_.store(seconds, std::memory_order_relaxed); }

  ChannelStatistics statistics() const;

  // Returns whether a collective call is running. Any thread may call busy().
  bool busy() const { return busy_.load(); }

  // Returns a text about a collective call that has waited for a long time, or "" if there is no
  // such call. Any thread may call waiting().
  std::string waiting() const;

  // Make the channel unusable. Call GiveUp if this worker cannot do the work that other workers
  // wait for. After GiveUp, the other workers' calls fail instead of waiting, or the job ends with
  // the message `why`.
  void GiveUp(const char* why) { DoGiveUp(why); }

  // Collective calls. Sizes are in bytes and have no limit. The memory to send and the memory to
  // receive must not overlap. If memory runs out during a collective call, the channel becomes
  // unusable.

  // Sends part r of `send` to worker r, and receives the parts for this worker into `recv`, worker
  // 0's part first. Part r has send_bytes[r] bytes in `send`, and recv_bytes[r] bytes in `recv`.
  // The size that worker a sends to worker b must equal the size that b expects from a. A worker's
  // own part is copied.
  void AllToAllV(const void* send, const size_t* send_bytes, void* recv, const size_t* recv_bytes);
  // Writes the `bytes` bytes of each worker to `all`, worker 0's bytes first.
  void AllGather(const void* mine, size_t bytes, void* all);
  // Writes the all_bytes[r] bytes of each worker r to `all`, worker 0's bytes first. `mine` points
  // to all_bytes[rank()] bytes, and may point to the place of these bytes in `all`.
  void AllGatherV(const void* mine, void* all, const size_t* all_bytes);
  // Does not return before all workers have called Barrier.
  void Barrier();

  // Any thread may send and receive single messages, even during collective calls. Each message is
  // received once, by one thread. Messages with the same sender and tag arrive in the order of
  // sending.

  // Sends a message to another worker or to this worker. Copies the data and returns at once.
  void Send(int to, int tag, const void* data, size_t bytes);
  // If a message with tag `tag` has arrived from worker `from` (kAny: from any worker), receives
  // the message.
  std::optional<WorkerMessage> TryReceive(int from, int tag);
  // Waits for a message that has tag `tag` and comes from worker `from` (kAny: from any worker).
  WorkerMessage Receive(int from, int tag);

 protected:
  // Throws WorkerError, because this worker waited too long for the missing workers.
  [[noreturn]] void TimedOut(double seconds, const std::vector<int>& missing) const;
  // Returns a text such as "waited 5 s for worker 1 on channel 'step', to exchange keys of table
  // 'user'".
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
  // Either ends the process, or makes the calls of all other workers on the channel fail.
  virtual void DoGiveUp(const char* why) = 0;
  virtual void DoSend(int to, int tag, const char* data, size_t bytes) = 0;
  virtual std::optional<WorkerMessage> DoTryReceive(int from, int tag) = 0;

  // Call fn, and make the channel unusable if fn runs out of memory.
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

// Returns the bytes of each worker, worker 0's bytes first; the lengths may differ. Collective.
std::vector<std::string> GatherBytes(Communicator& channel, const std::string& mine);

}  // namespace msrec
