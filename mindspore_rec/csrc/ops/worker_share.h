// SPDX-License-Identifier: Apache-2.0
//
// WorkerShare: a worker's share of a batch, in proportion to the worker's number of samples in the
// step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dense/batch_share.h"
#include "workers/collective.h"

namespace msrec {

class WorkerShare : public BatchShare {
 public:
  // Creates the share for the step that the worker group has begun. `exchange` must outlive this
  // object.
  explicit WorkerShare(TableExchange* exchange);
  int rank() const override { return exchange_->group->rank(); }
  const std::vector<float>& weights() const override { return weights_; }
  int64_t RowsBefore(int64_t rows) const override { return exchange_->group->RowsBefore(rows); }
  std::vector<double> Gather(const char* what, const std::vector<double>& mine) override;

 private:
  TableExchange* const exchange_;
  const std::vector<float> weights_;
};

// Returns the BatchShare of this worker; null if there is only one worker.
std::unique_ptr<BatchShare> TheShare();

}  // namespace msrec
