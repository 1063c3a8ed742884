// SPDX-License-Identifier: Apache-2.0
//
// WorkerShare: a worker's share of a batch, in proportion to its samples of the step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dense/batch_share.h"
#include "workers/collective.h"

namespace msrec {

class WorkerShare : public BatchShare {
 public:
  // The share in the step that the group has begun. The exchange must outlive this object.
  explicit WorkerShare(TableExchange* exchange);
  int rank() const override { return exchange_->group->rank(); }
  const std::vector<float>& weights() const override { return weights_; }
  int64_t RowsBefore(int64_t rows) const override { return exchange_->group->RowsBefore(rows); }
  std::vector<double> Gather(const char* what, const std::vector<double>& mine) override;

 private:
  TableExchange* const exchange_;
  const std::vector<float> weights_;
};

// Returns the share of this process; null if this process is the only worker.
std::unique_ptr<BatchShare> TheShare();

}  // namespace msrec
