// SPDX-License-Identifier: Apache-2.0
//
// BatchShare: this worker's share of a batch whose rows several workers have. What a layer needs of
// all rows goes through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msrec {

class BatchShare {
 public:
  virtual ~BatchShare() = default;

  virtual int rank() const = 0;
  // Weight of each worker's gradients in the batch's gradients; 0 of a worker without samples,
  // whose rows are of no batch.
  virtual const std::vector<float>& weights() const = 0;
  // Number of rows of the batch before this worker's first one, where it has `rows`.
  virtual int64_t RowsBefore(int64_t rows) const = 0;
  // Returns the numbers of all workers, as many of each, worker 0's numbers first. Collective: all
  // workers call it for the same `what`.
  virtual std::vector<double> Gather(const char* what, const std::vector<double>& mine) = 0;

  bool is_idle() const { return weights()[static_cast<size_t>(rank())] == 0; }
};

}  // namespace msrec
