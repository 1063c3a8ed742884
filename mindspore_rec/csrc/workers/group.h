// SPDX-License-Identifier: Apache-2.0
//
// The workers of a job as one of them sees them: channels to the others, and the step they do
// together.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "workers/communicator.h"

namespace msrec {

// Channels, in the order in which they are made. Each is for one kind of thread, so that threads
// of a worker never wait for one another's messages.
enum class Channel {
  kStep,        // operators of a step
  kControl,     // the main thread of Python
  kAhead,       // the prefetch thread
  kCheckpoint,  // the thread that writes checkpoints
  kService,     // requests of any thread of any worker, by single messages
  kMerge,       // the thread that merges full checkpoints
};
constexpr std::array<const char*, 6> kChannelNames = {"step",       "control", "ahead",
                                                      "checkpoint", "service", "merge"};

class WorkerGroup {
 public:
  // Takes one communicator for each of kChannelNames, all of the same rank and size.
  explicit WorkerGroup(std::vector<std::unique_ptr<Communicator>> channels);

  int rank() const { return rank_; }
  int size() const { return size_; }
  Communicator& channel(Channel which) { return *channels_[static_cast<size_t>(which)]; }

  // Sets the wait limit of all channels.
  void SetWaitLimit(double seconds);

  // Begins a step: `samples` has the number of samples of each worker's batch, at least 0. Called
  // before the operators of the step run, from any thread. Throws std::invalid_argument where the
  // length differs from size(), or a number is negative. With `summed` the losses are sums over
  // samples, and so are gradients: each worker with samples has the weight 1.
  void BeginStep(int64_t step, const std::vector<int64_t>& samples, bool summed = false);

  // Number of the present step; -1 before BeginStep was called.
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  // Weight of each worker's mean gradient in the global batch's: its share of the samples, 0 for
  // all where no worker has any, 1 / size() before BeginStep was called; 1 where losses are sums.
  std::vector<float> weights() const;
  float weight() const;
  // Number of rows of all workers before this worker's first one, where it has `rows`, of each
  // sample as many. Before BeginStep was called, all have as many.
  int64_t RowsBefore(int64_t rows) const;
  // Whether this worker has no samples in this step: it takes part in exchanges without keys.
  bool idle() const { return idle_.load(std::memory_order_acquire); }

 private:
  const std::vector<std::unique_ptr<Communicator>> channels_;
  const int rank_;
  const int size_;
  std::atomic<int64_t> step_{-1};
  std::atomic<bool> idle_{false};
  mutable std::mutex mutex_;  // of weights and samples: operators may read them in another thread
  std::vector<float> weights_;
  std::vector<int64_t> samples_;  // of the step; empty before BeginStep
};

// Returns the group of this process, null where it was started without a launcher. It lives as
// long as the process.
WorkerGroup* TheGroup();
// Makes a group that of this process, once. The old one is returned, for tests.
std::unique_ptr<WorkerGroup> SetTheGroup(std::unique_ptr<WorkerGroup> group);

}  // namespace msrec
