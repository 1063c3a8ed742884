// SPDX-License-Identifier: Apache-2.0
//
// Collective: one operation that all workers do together on tables. Collective checks that all
// workers do the same operation. If the operation fails on one worker, the operation fails on all
// workers. The failed worker throws its exception, and all other workers throw an exception that
// begins with "worker r: ".
//
//   Collective all(&exchange, [] { return std::string("lookup of table 'x'"); });
//   all.Try([&] { ... });                 // may fail on this worker; fills all.send_bytes()
//   all.Begin();                          // throws on all where it failed on one
//   all.Exchange(send, all.memory().recv.data());
//   all.Try([&] { ... });
//   all.Agree();                          // the same
//   all.Must([&] { ... });                // makes the change
//
// Before Begin, all code of a worker must run inside Try. If a worker threw an exception outside
// Try, the other workers would wait forever. The exchange of the workers' statuses allocates no
// memory, so a worker that runs out of memory can still report this failure to all other workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "util/buffer.h"
#include "util/float_mode.h"
#include "util/interpreter_lock.h"
#include "workers/group.h"

namespace msrec {

// Thrown if an operation failed on another worker; the exception contains that worker's message.
struct OtherWorkerFailed : WorkerError {
  using WorkerError::WorkerError;
};

// The channel, the memory and the counter that the operations of a process use; only one operation
// runs at a time.
struct TableExchange {
  // Requires: the group outlives this object.
  explicit TableExchange(WorkerGroup* given, Channel used = Channel::kStep);
  ~TableExchange();

  struct Header;  // message from one worker to another at the beginning of an operation
  static constexpr size_t kMessageBytes = 512;

  WorkerGroup* const group;
  const Channel through;
  std::mutex mutex;
  uint64_t operations = 0;  // done so far; equal on all workers
  Buffer<char> send, recv, rows;

  // Memory for the exchange of headers and statuses; each array has one entry per worker.
  std::vector<Header> sent_headers, headers;
  std::vector<size_t> send_bytes, received_bytes, header_bytes;
  std::vector<uint64_t> statuses;
  std::vector<char> messages;  // kMessageBytes each
};

class Collective {
 public:
  // Waits until the running operation has ended, then starts an operation with the name name().
  template <typename Name>
  Collective(TableExchange* exchange, const Name& name)
      : exchange_(exchange),
        lock_(exchange->mutex),
        operation_(NameOf(name)),
        scope_(operation_.c_str()),
        channel_(exchange->group->channel(exchange->through)) {
    exchange->send_bytes.assign(exchange->send_bytes.size(), 0);
  }
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  WorkerGroup& group() const { return *exchange_->group; }
  int size() const { return group().size(); }
  int rank() const { return group().rank(); }
  TableExchange& memory() { return *exchange_; }
  // After Begin, returns the channel for further collective calls of the operation.
  Communicator& channel() { return channel_; }

  // Call fn, unless this worker has already recorded a failure. If fn throws, record the exception.
  template <typename Fn>
  void Try(Fn&& fn) {
    if (error_ != nullptr) return;
    try {
      std::forward<Fn>(fn)();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  bool failed() const { return error_ != nullptr; }

  // Number of bytes that this worker will send to each worker in the next Exchange; 0 at first.
  std::vector<size_t>& send_bytes() { return exchange_->send_bytes; }
  // Tell each worker how many bytes it will receive from this worker, and make room in
  // memory().recv. Throws if the operation failed on a worker, and throws WorkerError if the
  // workers run different operations.
  void Begin();
  // Number of bytes that each worker will send to this worker, and the sum of these numbers.
  const std::vector<size_t>& received_bytes() const { return exchange_->received_bytes; }
  size_t received() const;
  void Exchange(const void* send, void* recv);
  // Do the same as Exchange() with sizes that all workers already know.
  void Exchange(const void* send, const std::vector<size_t>& send_bytes, void* recv,
                const std::vector<size_t>& recv_bytes);
  // Throw if the operation has failed on a worker since Begin.
  void Agree();
  // After Agree, call fn to make the operation's change. If fn throws, the channel becomes
  // unusable, because this worker lacks a change that the other workers make.
  template <typename Fn>
  void Must(Fn&& fn) {
    try {
      std::forward<Fn>(fn)();
    } catch (const std::exception& error) {
      channel_.GiveUp(error.what());
      throw;
    }
  }

 private:
  using Header = TableExchange::Header;

  template <typename Name>
  std::string NameOf(const Name& name) {
    std::string text;
    Try([&] { text = name(); });
    return text;
  }
  // Throw WorkerError unless all workers run the same operation.
  void RequireSame() const;
  // Throw if a worker's status is not 0.
  void RequireSuccess();

  const WithoutInterpreter without_;  // others may need Python's lock to get here
  TableExchange* const exchange_;
  const std::unique_lock<std::mutex> lock_;
  const DefaultFloatMode float_mode_;
  std::exception_ptr error_;
  const std::string operation_;
  const ExchangeScope scope_;
  Communicator& channel_;
};

}  // namespace msrec
