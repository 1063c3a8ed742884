// SPDX-License-Identifier: Apache-2.0
//
// BlockProducts: the matrix products of a linear layer. The products are computed for blocks with
// the same number of rows. If oneDNN is loaded, oneDNN computes the products; otherwise, loops of
// this library do.
#pragma once

#include <cstdint>
#include <memory>

#include "dense/onednn.h"
#include "dense/program.h"
#include "util/aligned.h"

namespace msrec {

// A weight [out, in].
struct LinearWeight {
  const float* data;
  int64_t out, in;
};

class BlockProducts {
 public:
  // `rows` is the number of rows of each block. `pass` chooses between the products of the forward
  // pass and the products of the gradient.
  enum class Pass { kForward, kGradient };
  BlockProducts(Pass pass, Precision precision, int64_t rows, const LinearWeight& weight);

  // Prepares the block `x` [rows, width] for a product. Returns `x` itself, or a rounded copy in
  // thread-local memory. The copy is valid until the thread's next call with the same `place`,
  // which is 0 or 1.
  const void* Factor(int place, int64_t width, const float* x) const;

  // y [rows, out] = x W^T
  void Forward(const void* x, float* y) const;
  // of_x [rows, in] = of_y W
  void Backward(const void* of_y, float* of_x) const;
  // of_weight [out, in] = of_y^T x; or, if `adds` is true, of_weight += of_y^T x.
  void Gradient(const void* of_y, const void* x, bool adds, float* of_weight) const;

 private:
  ProductShape GradientShape(bool adds) const;
  // product [rows, columns] = rows [rows, depth] times the weight
  void Multiply(const void* rows, int64_t columns, int64_t depth, float* product) const;
  void Pack(const ProductShape& shape);
  void CopyWeight();

  const Pass pass_;
  const Precision precision_;
  const FactorType type_;
  const int64_t rows_;
  const LinearWeight weight_;
  // Products by oneDNN: `product_` multiplies by the weight, and `first_` and `adding_` compute the
  // weight's gradient.
  std::shared_ptr<const Product> product_, first_, adding_;
  AlignedMemory memory_;
  // The weight, packed for `product_`. Without oneDNN, `packed_` is a plain copy of the weight; for
  // the forward pass, the copy is transposed.
  void* packed_ = nullptr;
};

}  // namespace msrec
