// SPDX-License-Identifier: Apache-2.0
//
// BatchShare: this worker's share of a batch whose rows are spread over several workers. A layer
// exchanges all data about the whole batch through this class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msrec {

class BatchShare {
 public:
  virtual ~BatchShare() = default;

  virtual int rank() const = 0;
  // Weight of each worker's gradients in the batch's gradients. The weight is 0 for a worker
  // without samples.
  virtual const std::vector<float>& weights() const = 0;
  // Number of rows of the batch before this worker's first row, if this worker has `rows` rows.
  virtual int64_t RowsBefore(int64_t rows) const = 0;
  // Returns the numbers of all workers, worker 0 first; each worker passes equally many numbers.
  // Collective: all workers call it for the same `what`.
  virtual std::vector<double> Gather(const char* what, const std::vector<double>& mine) = 0;

  bool is_idle() const { return weights()[static_cast<size_t>(rank())] == 0; }
};

}  // namespace msrec
