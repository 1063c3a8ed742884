// SPDX-License-Identifier: Apache-2.0
//
// BatchShare: this worker's share of a batch whose rows are spread over several workers. A layer
// that needs data about the whole batch exchanges this data with other workers through BatchShare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msrec {

class BatchShare {
 public:
  virtual ~BatchShare() = default;

  virtual int rank() const = 0;
  // Returns one weight per worker. The gradient of the whole batch is the weighted sum of the
  // workers' gradients. A worker without samples has weight 0.
  virtual const std::vector<float>& weights() const = 0;
  // Returns the number of rows that precede this worker's rows in the whole batch. This worker has
  // `rows` rows.
  virtual int64_t RowsBefore(int64_t rows) const = 0;
  // Returns the numbers that all workers pass as `mine`, worker 0 first. Every worker must call
  // Gather with the same `what` and the same count of numbers.
  virtual std::vector<double> Gather(const char* what, const std::vector<double>& mine) = 0;

  bool is_idle() const { return weights()[static_cast<size_t>(rank())] == 0; }
};

}  // namespace msrec
