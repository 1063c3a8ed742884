// SPDX-License-Identifier: Apache-2.0
//
// This process as a worker of a job that Open MPI's launcher has started: MPI itself, the channels,
// the end of a job that succeeds, and of one in which a worker fails or hangs.
//
// MPI has no way to go on without a worker, so every failure ends the whole job, and a new one
// starts from the last checkpoint. MPI_Finalize waits for all workers; a worker that failed must
// not call it. So a worker that ends says so to all others on a channel of the job's own, and
// finalizes once all have said so; one that fails ends its process without, at which the launcher
// ends all others. A worker that waits for one that has said so ends the job.
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
  // Prints the stacks of all threads of Python to a file descriptor; may be called by any thread.
  void (*print_stacks)(int fd) = nullptr;
};

class MpiJob {
 public:
  // Exit code of a worker that ends the job because it waited for too long.
  static constexpr int kHangCode = 124;

  // Starts MPI and makes the channels, once in a process. The job lives as long as the process.
  // Throws std::invalid_argument unless most_bytes is a positive int, and WorkerError if the shim
  // cannot be opened, or MPI does not start or cannot be called by many threads.
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

  // Hands out the group of all channels, once.
  std::unique_ptr<WorkerGroup> TakeGroup();

  // Whether a worker has said that it is at its end.
  bool HasLeft(int rank) const { return left_[rank].load(std::memory_order_acquire); }

  // Throws WorkerError where this worker has said that it is at its end: exchanges are over.
  void RequireMember() const;

  // Tell the others that this worker is at its end, and wait until all are. Return false, without
  // waiting longer, if another worker still waits for this one in an exchange. Wait a few seconds
  // for the exchanges of other threads.
  bool Leave();
  // Leaves, then ends MPI; channels are of no more use. Throws WorkerError where another worker
  // waits for this one.
  void Finish();
  // Ends the job's own thread, which must not outlive the Python interpreter.
  void StopWatching();

  // Ends the job: prints why, this worker's waits and stacks, then ends the process.
  // EndHung has all other workers print the same first. EndLeft lets worker `left`, which is at
  // its end, end first, so that the job's exit code is its own.
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
