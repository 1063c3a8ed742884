// SPDX-License-Identifier: Apache-2.0
#include "dense/row_masks.h"

#include <stdexcept>
#include <string>

namespace msrec {
namespace {

constexpr int64_t kMostMasks = int64_t{1} << 32;

}  // namespace

std::vector<ExtraInput> RowMasks::Extras(int64_t width) const {
  if (count < 1) throw std::invalid_argument("a dropout needs at least 1 mask");
  if (count > kMostMasks) {
    throw std::invalid_argument("a dropout has at most " + std::to_string(kMostMasks) + " masks");
  }
  return {{masks, count * width}, {used, 1, "int32"}};
}

MaskRows RowMasks::Rows(const SliceRun& slice) const {
  if (!any()) return {};
  const int64_t before = *static_cast<const int32_t*>(slice.run().extras[used]);
  const int64_t first = (slice.run().first_row + slice.first_row() + 1 + before) % count;
  return {static_cast<const float*>(slice.run().extras[masks]), first < 0 ? first + count : first,
          count};
}

void RequireDropsInPlace(Activation activation) {
  if (DropsInPlace(activation)) return;
  throw std::invalid_argument("the dropout of a tanh, sigmoid or gelu must be a layer of its own");
}

}  // namespace msrec
