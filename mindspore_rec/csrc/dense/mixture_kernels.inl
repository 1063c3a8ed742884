// SPDX-License-Identifier: Apache-2.0
//
// Loops of a mixture of experts: sums of a row's vectors, weighed by its gates.
// Included by elementwise.inl, whose rules hold here.
#pragma once

#include "dense/elementwise.h"
#include "dense/small_product.inl"

namespace msrec {
namespace {

void Mix(int64_t rows, const MixtureShape& shape, Block units, Block gates, Block output) {
  for (int64_t r = 0; r < rows; ++r) {
    SmallProduct(shape.tasks, shape.width, shape.experts,
                 {gates.data + r * gates.ld, shape.experts, 1}, units.data + r * units.ld,
                 shape.width, false, output.data + r * output.ld, shape.width);
  }
}

void MixUnitsGradient(int64_t rows, const MixtureShape& shape, Block gates, Block output_gradient,
                      bool adds, Block gradient) {
  for (int64_t r = 0; r < rows; ++r) {
    SmallProduct(shape.experts, shape.width, shape.tasks,
                 {gates.data + r * gates.ld, 1, shape.experts},
                 output_gradient.data + r * output_gradient.ld, shape.width, adds,
                 gradient.data + r * gradient.ld, shape.width);
  }
}

void MixGatesGradient(int64_t rows, const MixtureShape& shape, Block units, Block output_gradient,
                      bool adds, Block gradient) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* of_tasks = output_gradient.data + r * output_gradient.ld;
    const float* experts = units.data + r * units.ld;
    float* target = gradient.data + r * gradient.ld;
    for (int64_t k = 0; k < shape.tasks; ++k) {
      for (int64_t e = 0; e < shape.experts; ++e) {
        const float dot = Dot(shape.width, of_tasks + k * shape.width, experts + e * shape.width);
        float* at = target + k * shape.experts + e;
        *at = adds ? *at + dot : dot;
      }
    }
  }
}

}  // namespace
}  // namespace msrec
