// SPDX-License-Identifier: Apache-2.0
#include "table/core/step_lookups.h"

#include <new>
#include <stdexcept>
#include <string>

#include "rows/for_shards.h"
#include "table/core/table_core.h"
#include "util/hash.h"

namespace msrec {
namespace {

// Maximum number of stored lookups without a gradient. If no backward pass follows a forward pass,
// the lookup of the forward pass stays stored without a gradient.
constexpr size_t kMaxOutstanding = 512;
constexpr size_t kMaxSpare = 4;

}  // namespace

void StepLookups::ReserveSpare() { spare_.reserve(kMaxSpare); }

// ---------------------------------------------------------------- batches

std::unique_ptr<Batch> StepLookups::NewBatch(const IdView& ids, const IdFilter& filter) {
  CheckBatchSize(ids, core_->config.name);
  std::unique_ptr<Batch> batch;
  if (spare_.empty()) {
    batch = std::make_unique<Batch>();
  } else {
    batch = std::move(spare_.back());
    spare_.pop_back();
  }
  IdFilter full = filter;
  full.vocabulary = core_->config.vocabulary;
  full.identity = core_->context.identity();
  batch->pooled = false;
  batch->probed = false;
  batch->grad_rows = ids.size;
  batch->Partition(ids, full);
  if (batch->begin[kNumShards] < ids.size) {
    try {
      core_->CheckIds(ids, filter);
    } catch (...) {
      Recycle(std::move(batch));
      throw;
    }
  }
  return batch;
}

void StepLookups::Recycle(std::unique_ptr<Batch> batch) {
  if (spare_.size() < kMaxSpare) spare_.push_back(std::move(batch));
}

StepLookups::Outstanding::node_type StepLookups::NewPlace() {
  Outstanding one;
  one.emplace(0, nullptr);
  return one.extract(one.begin());
}

int64_t StepLookups::Keep(std::unique_ptr<Batch> batch, Outstanding::node_type place) noexcept {
  while (outstanding_.size() >= kMaxOutstanding) {
    Recycle(std::move(outstanding_.begin()->second));
    outstanding_.erase(outstanding_.begin());
  }
  const int64_t ticket = next_ticket_++;
  batch->ticket = ticket;
  batch->structure = core_->Structure();
  place.key() = ticket;
  place.mapped() = std::move(batch);
  outstanding_.insert(std::move(place));
  return ticket;
}

// ---------------------------------------------------------------- gradients

void StepLookups::Accumulate(int64_t ticket, const Gradient& grad, size_t grad_rows) {
  if (ticket == kFrozenTicket) return;
  // First add the waiting gradients that an earlier call could not add.
  MergeDeferred(false);
  const auto it = outstanding_.find(ticket);
  if (it == outstanding_.end()) {
    throw std::runtime_error(core_->Where(
        "got a gradient for a lookup it no longer knows (ticket " + std::to_string(ticket) +
        "): a step was taken, or gradients discarded, between the forward and backward pass"));
  }
  if (it->second->grad_rows != grad_rows) {
    throw std::invalid_argument(core_->Where("the gradient has " + std::to_string(grad_rows) +
                                             " rows, its lookup had " +
                                             std::to_string(it->second->grad_rows)));
  }
  const int dim = core_->config.dim;
  // Begin with the operations that can fail. If an operation fails, the lookup stays recorded, and
  // a later call can add the gradient.
  if (outstanding_.begin()->first < ticket) {
    const size_t numbers = grad_rows == 0 ? 0 : ((grad_rows - 1) * it->second->stride + 1) * dim;
    Deferred& waiting = deferred_[ticket];
    try {
      if (grad.halves != nullptr) {
        waiting.halves.assign(grad.halves, grad.halves + numbers);
      } else {
        waiting.floats.assign(grad.floats, grad.floats + numbers);
      }
    } catch (...) {
      deferred_.erase(ticket);
      throw;
    }
    waiting.batch = std::move(it->second);
    outstanding_.erase(it);
    return;
  }
  gradients_.Add(*it->second, grad, dim, *core_->context.kernels);
  Recycle(std::move(it->second));
  outstanding_.erase(it);
  try {
    MergeDeferred(false);
  } catch (const std::bad_alloc&) {
    // At this point, the gradient of the lookup with ticket `ticket` has already been added.
    // Gradients that still wait are added by a later call.
  }
}

void StepLookups::MergeDeferred(bool all) {
  while (!deferred_.empty()) {
    auto first = deferred_.begin();
    if (!all && !outstanding_.empty() && outstanding_.begin()->first < first->first) return;
    gradients_.Add(*first->second.batch, first->second.grad(), core_->config.dim,
                   *core_->context.kernels);
    Recycle(std::move(first->second.batch));
    deferred_.erase(first);
  }
}

double StepLookups::SquaredNorm() {
  MergeDeferred(true);
  double parts[kNumShards] = {};
  ForAllShards([&](int s) {
    GradientSum::Part& part = gradients_.part(s);
    parts[s] = core_->context.kernels->squared_norm(core_->config.dim, part.row.data(),
                                                    part.sum.data(), part.n);
  });
  double total = 0.0;
  for (const double part : parts) total += part;
  return total;
}

void StepLookups::Forget() {
  for (auto& [ticket, batch] : outstanding_) Recycle(std::move(batch));
  outstanding_.clear();
  deferred_.clear();
  gradients_.Reset();
  tokens_.Reset();
  if (!noted_.empty()) last_noted_.swap(noted_);
  noted_.clear();
}

void StepLookups::Free() {
  Forget();
  spare_.clear();
}

// ---------------------------------------------------------------- recent lookups

void StepLookups::ReserveNote() {
  if (core_->context.tiered) noted_.reserve(noted_.size() + 1);
}

void StepLookups::Note(const IdView& ids) {
  if (core_->context.tiered) noted_.emplace_back(HashIds(ids), ids.size);
}

size_t StepLookups::bytes() const {
  size_t total = gradients_.bytes();
  for (const auto& batch : spare_) total += batch->bytes();
  for (const auto& [ticket, batch] : outstanding_) total += batch->bytes();
  return total;
}

}  // namespace msrec
