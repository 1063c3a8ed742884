// SPDX-License-Identifier: Apache-2.0
//
// Collective: one operation that all workers do together on tables. It makes sure that they do the
// same one, and that where it fails on one of them it fails on all: whoever fails throws its own
// exception, the others one that begins with "worker r: ".
//
//   Collective all(&exchange, "lookup of table 'x'");
//   all.Try([&] { ... });                 // may fail on this worker
//   all.Begin(bytes_to_each);             // throws on all where it failed on one
//   all.Exchange(send, all.memory().recv.data());
//   all.Try([&] { ... });
//   all.Agree();                          // the same
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

// An operation failed on another worker, whose message this has.
struct OtherWorkerFailed : WorkerError {
  using WorkerError::WorkerError;
};

// The channel, the memory and the count of the operations of one process, which take turns.
struct TableExchange {
  // Requires: the group outlives it.
  explicit TableExchange(WorkerGroup* given, Channel used = Channel::kStep)
      : group(given), through(used) {}

  WorkerGroup* const group;
  const Channel through;
  std::mutex mutex;
  uint64_t operations = 0;  // done so far; equal on all workers
  Buffer<char> send, recv, rows;
};

class Collective {
 public:
  // Names the operation, and waits for the one under way.
  Collective(TableExchange* exchange, std::string operation);
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  WorkerGroup& group() const { return *exchange_->group; }
  int size() const { return group().size(); }
  int rank() const { return group().rank(); }
  TableExchange& memory() { return *exchange_; }
  // For collective calls of the operation's own, after Begin.
  Communicator& channel() { return channel_; }

  // Call fn, unless something has failed here, and remember what it throws.
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

  // Tell each worker how many bytes it is to get from this one by the next Exchange, and make room
  // in memory().recv for those that come. Throws where the operation failed on a worker, and
  // WorkerError where they are at different operations.
  void Begin(const std::vector<size_t>& send_bytes);
  // Number of bytes that each worker will send to this one, and their sum.
  const std::vector<size_t>& received_bytes() const { return received_; }
  size_t received() const;
  void Exchange(const void* send, void* recv);
  // The same with sizes that all know.
  void Exchange(const void* send, const std::vector<size_t>& send_bytes, void* recv,
                const std::vector<size_t>& recv_bytes);
  // Throw where something failed on a worker since Begin.
  void Agree();

 private:
  struct Header;
  // Throw WorkerError unless all workers are at one operation.
  void RequireSame(const std::vector<Header>& headers) const;
  // Throw: something failed on the workers whose status is not 0.
  [[noreturn]] void Fail(const std::vector<uint64_t>& statuses);

  const WithoutInterpreter without_;  // others may need Python's lock to get here
  TableExchange* const exchange_;
  const std::unique_lock<std::mutex> lock_;
  const DefaultFloatMode float_mode_;
  const std::string operation_;
  const ExchangeScope scope_;
  Communicator& channel_;
  std::exception_ptr error_;
  std::vector<size_t> sent_, received_;
};

}  // namespace msrec
