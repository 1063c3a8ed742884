// SPDX-License-Identifier: Apache-2.0
//
// The channels from one worker to all other workers of a job, and the step that all workers run
// together.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "workers/communicator.h"

namespace msrec {

// Channels, in the order of creation. Each kind of thread uses a separate channel, so threads of
// different kinds never wait for each other's messages.
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
  // `channels` contains one communicator for each name in kChannelNames; all communicators have the
  // same rank and size.
  explicit WorkerGroup(std::vector<std::unique_ptr<Communicator>> channels);

  int rank() const { return rank_; }
  int size() const { return size_; }
  Communicator& channel(Channel which) { return *channels_[static_cast<size_t>(which)]; }

  // Begins a step. `samples` contains the number of samples in each worker's batch, at least 0. Any
  // thread may call BeginStep, before the operators of the step run. Throws std::invalid_argument
  // if the length differs from size(), or if a number is negative. If `summed` is true, losses and
  // gradients are sums over samples, so each worker with samples has the weight 1.
  void BeginStep(int64_t step, const std::vector<int64_t>& samples, bool summed = false);

  // Index of the current step; -1 before the first BeginStep.
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  // Weight of each worker in the average of the workers' mean gradients: the worker's share of the
  // samples. All weights are 0 if no worker has samples, and 1 / size() before the first BeginStep.
  // If losses are sums, the weight of each worker with samples is 1.
  std::vector<float> weights() const;
  float weight() const;
  // Index of this worker's first row in the global batch, if this worker's batch has `rows` rows.
  // RowsBefore assumes that each sample has the same number of rows. Before the first BeginStep,
  // all workers are assumed to have the same number of rows.
  int64_t RowsBefore(int64_t rows) const;
  // True if this worker has no samples in the current step. An idle worker takes part in exchanges,
  // but sends no keys.
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

// Returns the group of this process, or null if the process was started without a launcher. The
// group lives as long as the process.
WorkerGroup* TheGroup();
// Sets the group of this process, once. Returns the previous group, which only tests use.
std::unique_ptr<WorkerGroup> SetTheGroup(std::unique_ptr<WorkerGroup> group);

}  // namespace msrec
