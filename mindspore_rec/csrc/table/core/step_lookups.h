// SPDX-License-Identifier: Apache-2.0
//
// StepLookups contains the lookups of a step that have no gradients yet, indexed by ticket, and the
// sum of the gradients that have arrived. Gradients may arrive in any order, but are summed in the
// order of the lookups.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "rows/batch.h"
#include "rows/gradient_sum.h"
#include "table/core/gradient_tokens.h"

namespace msrec {

struct TableCore;

class StepLookups {
 public:
  // The ticket of a lookup in a table that is not trainable.
  static constexpr int64_t kFrozenTicket = -1;
  using Outstanding = std::map<int64_t, std::unique_ptr<Batch>>;  // by ticket

  // Requires: core outlives this object.
  explicit StepLookups(const TableCore* core) : core_(core) {}
  // Reserve memory, so that the next call of Recycle cannot fail. Throws std::bad_alloc.
  void ReserveSpare();

  // ---- batches

  // Return a batch of the ids, partitioned by shard. Throws std::invalid_argument.
  std::unique_ptr<Batch> NewBatch(const IdView& ids, const IdFilter& filter);
  // Keep a batch's memory for later batches.
  void Recycle(std::unique_ptr<Batch> batch);
  // Allocate memory for a later call of Keep. Call NewPlace before a lookup changes anything.
  // Throws std::bad_alloc.
  static Outstanding::node_type NewPlace();
  // Keep a batch until its gradient arrives; return its ticket. If there are too many batches, the
  // oldest batches are dropped.
  int64_t Keep(std::unique_ptr<Batch> batch, Outstanding::node_type place) noexcept;
  int64_t NewTicket() { return next_ticket_++; }

  // ---- gradients

  // Add the gradient of the lookup with ticket `ticket`. If the gradient of an earlier lookup is
  // still missing, copy the new gradient and add the copy later. If Accumulate throws, nothing was
  // added.
  void Accumulate(int64_t ticket, const Gradient& grad, size_t grad_rows);
  // Add to the sum, in the order of the lookups, the gradients that wait for an earlier gradient.
  // Stop at the first lookup whose gradient is still missing. If `all` is true, do not stop: add
  // all gradients that wait.
  void MergeDeferred(bool all);
  GradientSum& gradients() { return gradients_; }
  // The tokens of the gradients since the last step.
  GradientTokens& tokens() { return tokens_; }
  // Adds up the gradients of each key, and returns the sum of squares of all elements of the summed
  // gradients.
  double SquaredNorm();

  // Drop lookups and gradients at the end of the step.
  void Forget();
  // Drop lookups and gradients, and free the memory of batches.
  void Free();

  // ---- the ids of recent training lookups, recorded in tables with tiers below host memory

  // Reserve memory, so that the next call of Note cannot fail. Throws std::bad_alloc.
  void ReserveNote();
  void Note(const IdView& ids);
  // Return, for each training lookup of this step, the hash (HashIds) of the ids and the number of
  // ids. If this step has no training lookups, return the same data of the last step that had
  // training lookups.
  const std::vector<std::pair<uint64_t, size_t>>& recent() const {
    return noted_.empty() ? last_noted_ : noted_;
  }

  size_t bytes() const;

 private:
  struct Deferred {
    std::unique_ptr<Batch> batch;
    // A copy of a float32 gradient is in `floats`, and a copy of a bfloat16 gradient is in
    // `halves`; the unused vector is empty.
    std::vector<float> floats;
    std::vector<uint16_t> halves;

    Gradient grad() const {
      return halves.empty() ? Gradient(floats.data()) : Gradient::Bfloat16(halves.data());
    }
  };

  const TableCore* const core_;
  int64_t next_ticket_ = 1;
  Outstanding outstanding_;
  std::map<int64_t, Deferred> deferred_;
  GradientSum gradients_;
  GradientTokens tokens_;
  std::vector<std::unique_ptr<Batch>> spare_;
  std::vector<std::pair<uint64_t, size_t>> noted_, last_noted_;
};

}  // namespace msrec
