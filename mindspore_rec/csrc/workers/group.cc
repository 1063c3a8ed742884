// SPDX-License-Identifier: Apache-2.0
#include "workers/group.h"

#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace msrec {
namespace {

std::atomic<WorkerGroup*> the_group{nullptr};

}  // namespace

WorkerGroup::WorkerGroup(std::vector<std::unique_ptr<Communicator>> channels)
    : channels_(std::move(channels)),
      rank_(channels_.at(0)->rank()),
      size_(channels_.at(0)->size()),
      weights_(size_, 1.0f / static_cast<float>(size_)) {
  if (channels_.size() != kChannelNames.size()) {
    throw std::invalid_argument("a group has " + std::to_string(kChannelNames.size()) +
                                " channels, got " + std::to_string(channels_.size()));
  }
}

void WorkerGroup::BeginStep(int64_t step, const std::vector<int64_t>& samples, bool summed) {
  if (samples.size() != static_cast<size_t>(size_)) {
    throw std::invalid_argument("samples must have one number for each of the " +
                                std::to_string(size_) + " workers, got " +
                                std::to_string(samples.size()));
  }
  double sum = 0;
  for (const int64_t n : samples) {
    if (n < 0) {
      throw std::invalid_argument("samples must be at least 0, got " + std::to_string(n));
    }
    sum += static_cast<double>(n);
  }
  std::vector<int64_t> kept = samples;
  const std::lock_guard<std::mutex> lock(mutex_);
  samples_ = std::move(kept);
  for (int r = 0; r < size_; ++r) {
    const double share = sum == 0 ? 0.0 : static_cast<double>(samples[r]) / sum;
    weights_[r] = static_cast<float>(summed && samples[r] > 0 ? 1.0 : share);
  }
  idle_.store(samples[rank_] == 0, std::memory_order_release);
  step_.store(step, std::memory_order_relaxed);
}

std::vector<float> WorkerGroup::weights() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return weights_;
}

float WorkerGroup::weight() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return weights_[rank_];
}

int64_t WorkerGroup::RowsBefore(int64_t rows) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (samples_.empty()) return rank_ * rows;
  const int64_t mine = samples_[rank_];
  const int64_t before = std::accumulate(samples_.begin(), samples_.begin() + rank_, int64_t{0});
  return mine > 0 && rows % mine == 0 ? before * (rows / mine) : before;
}

WorkerGroup* TheGroup() { return the_group.load(std::memory_order_acquire); }

std::unique_ptr<WorkerGroup> SetTheGroup(std::unique_ptr<WorkerGroup> group) {
  return std::unique_ptr<WorkerGroup>(the_group.exchange(group.release()));
}

}  // namespace msrec
