// SPDX-License-Identifier: Apache-2.0
//
// Mixture: for each task, the sum of the experts' outputs, weighted by the gates of the task.
#pragma once

#include "dense/layer.h"

namespace msrec {

// output [tasks, width] = gates [tasks, experts] units [experts, width], for each row.
class Mixture : public Layer {
 public:
  // Throws std::invalid_argument if the widths of units, gates and output do not match.
  Mixture(View units, View gates, View output, int64_t experts, int64_t tasks);
  bool always_adds() const override { return false; }
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;

 private:
  const MixtureShape shape_;
};

}  // namespace msrec
