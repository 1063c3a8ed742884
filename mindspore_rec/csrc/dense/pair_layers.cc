// SPDX-License-Identifier: Apache-2.0
#include "dense/pair_layers.h"

#include <stdexcept>

namespace msrec {

// ---------------------------------------------------------------- dot products

PairwiseDots::PairwiseDots(View input, View output, int64_t vectors, bool diagonal,
                           bool keeps_first)
    : vectors_(vectors),
      dim_(vectors < 1 ? 0 : input.width / vectors),
      diagonal_(diagonal),
      keeps_first_(keeps_first) {
  const int64_t products = vectors * (vectors + (diagonal ? 1 : -1)) / 2;
  if (dim_ < 1 || input.width != vectors * dim_ || products < 1 ||
      output.width != products + (keeps_first ? dim_ : 0)) {
    throw std::invalid_argument("pairwise dots must have a column for each pair of vectors");
  }
  inputs_ = {{input, false}};
  outputs_ = {output};
}

View PairwiseDots::products() const {
  View products = outputs_[0];
  if (keeps_first_) {
    products.offset += dim_;
    products.width -= dim_;
  }
  return products;
}

void PairwiseDots::Forward(const SliceRun& slice) const {
  const Block x = slice.value(inputs_[0].view);
  slice.loops().pair_dots(slice.rows(), vectors_, dim_, diagonal_, x,
                          slice.Temporary(PairScratch::Forward(vectors_, dim_)),
                          slice.value(products()));
  if (keeps_first_) slice.loops().copy(slice.rows(), dim_, x, slice.value(outputs_[0]));
}

void PairwiseDots::Backward(const SliceRun& slice) const {
  const Block dx = slice.gradient(inputs_[0].view);
  slice.loops().pair_dots_gradient(slice.rows(), vectors_, dim_, diagonal_,
                                   slice.value(inputs_[0].view), slice.gradient(products()),
                                   slice.Temporary(PairScratch::Backward(vectors_)),
                                   inputs_[0].adds, dx);
  if (keeps_first_) {
    slice.loops().add(slice.rows(), dim_, slice.gradient(outputs_[0]), dx);
  }
}

// ---------------------------------------------------------------- factorization machine

FactorizedPairs::FactorizedPairs(View input, View output, int64_t fields, bool sums)
    : fields_(fields), dim_(fields < 1 ? 0 : input.width / fields), sums_(sums) {
  if (dim_ < 1 || input.width != fields * dim_ || output.width != (sums ? 1 : dim_)) {
    throw std::invalid_argument("pairs of fields must have as many columns as a field, or one");
  }
  inputs_ = {{input, false}};
  outputs_ = {output};
}

void FactorizedPairs::Forward(const SliceRun& slice) const {
  const Elementwise& loops = slice.loops();
  const Block x = slice.value(inputs_[0].view);
  const Block y = slice.value(outputs_[0]);
  if (!sums_) {
    loops.pair_sums(slice.rows(), fields_, dim_, x, y);
    return;
  }
  const Block units{slice.Temporary(slice.rows() * dim_), dim_};
  loops.pair_sums(slice.rows(), fields_, dim_, x, units);
  loops.row_sums(slice.rows(), dim_, units, y);
}

void FactorizedPairs::Backward(const SliceRun& slice) const {
  Block gradient = slice.gradient(outputs_[0]);
  if (sums_) {  // every unit has the gradient of their sum
    const Block units{slice.Temporary(slice.rows() * dim_), dim_};
    slice.loops().spread(slice.rows(), dim_, gradient, units);
    gradient = units;
  }
  slice.loops().pair_sums_gradient(slice.rows(), fields_, dim_, slice.value(inputs_[0].view),
                                   gradient, inputs_[0].adds, slice.gradient(inputs_[0].view));
}

}  // namespace msrec
