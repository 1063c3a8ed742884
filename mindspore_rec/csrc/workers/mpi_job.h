// SPDX-License-Identifier: Apache-2.0
//
// MpiJob connects this process, as a worker, to the job that Open MPI's launcher started. MpiJob
// manages MPI itself, the channels, and the end of the job. The job ends when all workers have
// succeeded, or when a worker fails or hangs.
//
// MPI cannot continue without a worker, so every failure ends the whole job, and a new job starts
// from the last checkpoint. MPI_Finalize waits for all workers, so a failed worker must not call
// MPI_Finalize. A worker that ends normally notifies all other workers on a channel of the job, and
// calls MPI_Finalize after all workers have sent their notifications. A failed worker ends its
// process without MPI_Finalize, and the launcher then ends all other processes. If a worker waits
// for a worker that has already ended, the waiting worker ends the job.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "util/process.h"
#include "workers/communicator.h"
#include "workers/group.h"
#include "workers/mpi_shim.h"

namespace msrec {

struct MpiJobOptions {
  std::string shim;                        // path of _mpi.so
  double wait_limit = kDefaultWaitLimit;   // seconds
  double start_limit = kDefaultWaitLimit;  // seconds in which all workers must have started
  size_t most_bytes = size_t{1} << 30;  // of one message of MPI, an int; longer ones go in pieces
  // Prints the stacks of all Python threads to a file descriptor. Any thread may call print_stacks.
  void (*print_stacks)(int fd) = nullptr;
};

class MpiJob {
 public:
  // Exit code of a worker that ends the job because a wait took too long.
  static constexpr int kHangCode = 124;

  // Starts MPI and creates the channels, once per process. The job lives as long as the process.
  // Throws std::invalid_argument unless most_bytes is a positive int. Throws WorkerError if the
  // shim cannot be opened, or if MPI does not start or does not support calls from many threads. If
  // MPI_Init takes longer than start_limit, ends the process with kHangCode.
  static MpiJob* Start(const MpiJobOptions& options);
  // Returns the job that was started, or null.
  static MpiJob* The();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const MpiShim& mpi() const { return *mpi_; }
  const OwnerProcess& owner() const { return owner_; }
  size_t most_bytes() const { return options_.most_bytes; }
  // Returns name and version of the MPI library.
  std::string library() const;

  // Returns the group of all channels. TakeGroup may be called only once.
  std::unique_ptr<WorkerGroup> TakeGroup();

  // True if the worker with rank `rank` has announced its end.
  bool HasLeft(int rank) const { return left_[rank].load(std::memory_order_acquire); }

  // Throws WorkerError if this worker has announced its end, because such a worker may not start an
  // exchange.
  void RequireMember() const;

  // Announce the end of this worker, and wait until all workers have announced their end. Return
  // false at once if another worker still waits for this worker in an exchange. Before Leave
  // announces the end, other threads get at most 5 seconds to finish their exchanges.
  bool Leave();
  // Calls Leave, then ends MPI; channels are then unusable. Throws WorkerError if another worker
  // waits for this worker.
  void Finish();
  // Ends the job's watcher thread, which must not outlive the Python interpreter.
  void StopWatching();

  // Print the reason, what this worker waits for, and this worker's stacks. Then end the process
  // and, as a result, the job. EndHung first tells all other workers to print what they wait for,
  // and their stacks. EndLeft is called if this worker waits for the worker with rank `left`, which
  // has announced its end. Before this worker ends, EndLeft waits at most 20 seconds until the
  // worker with rank `left` exits. The job then ends with the exit code of the worker with rank
  // `left`.
  [[noreturn]] void EndHung(const std::string& why);
  [[noreturn]] void EndLeft(const std::string& why, int left);
  [[noreturn]] void EndBroken(const char* why) noexcept;

 private:
  explicit MpiJob(const MpiJobOptions& options) : options_(options) {}
  void Open();
  void Init();
  void Check(int code, const char* what) const;
  void MakeChannels();
  void Watch();
  void TakeNotes();
  void Note(int to, int kind);
  std::string Me() const { return WorkerPrefix(rank_, size_); }
  void PrintReport(const std::string& why);
  void ClaimEnd();

  const MpiJobOptions options_;
  const OwnerProcess owner_;
  const MpiShim* mpi_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
  bool started_mpi_ = false;
  MpiHandle notes_ = 0;  // the job's own communicator
  std::vector<std::unique_ptr<Communicator>> channels_;
  std::vector<Communicator*> watched_;
  std::unique_ptr<std::atomic<bool>[]> left_;
  std::atomic<bool> leaving_{false};
  std::atomic<bool> needed_{false};
  std::atomic<bool> ending_{false};
  bool reported_ = false;  // of TakeNotes
  bool finished_ = false;

  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread watcher_;
};

}  // namespace msrec
