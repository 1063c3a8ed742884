// SPDX-License-Identifier: Apache-2.0
//
// The arguments that operators over histories have in common: matrices and offsets of lists.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "ops/args.h"
#include "sequence/lists.h"

namespace msrec {

// Returns argument i, which must be float32 [N, columns]; -1 allows any number of columns.
inline const float* Floats(const Args& args, int i, const char* name, int64_t columns) {
  if (!args.IsType(i, "float32")) {
    throw std::invalid_argument(std::string(name) + " must be float32, got " + args.dtypes[i]);
  }
  if (args.ndims[i] != 2 || (columns >= 0 && args.shapes[i][1] != columns)) {
    throw std::invalid_argument(std::string(name) + " must have the shape [N, " +
                                (columns >= 0 ? std::to_string(columns) : "width") + "], got " +
                                args.ShapeText(i));
  }
  return static_cast<const float*>(args.params[i]);
}

// Divides the rows of argument `values` into lists, whose offsets are argument i.
inline Lists ListsOf(const Args& args, int i, int values) {
  if (!args.IsType(i, "int64") || args.ndims[i] != 1 || args.Size(i) == 0) {
    throw std::invalid_argument("offsets must be an int64 Tensor [B + 1], got " +
                                args.ShapeText(i) + " of " + args.dtypes[i]);
  }
  return Lists(static_cast<const int64_t*>(args.params[i]), static_cast<int64_t>(args.Size(i)) - 1,
               args.shapes[values][0]);
}

// Checks that argument i [B, width] has one row per list and is as wide as argument j [N, width],
// and returns the width.
inline int64_t RowsOfLists(const Args& args, int i, int j, const Lists& lists, const char* name) {
  const int64_t width = Dimension(args.ndims, args.shapes, j, 1);
  Floats(args, i, name, width);
  if (args.shapes[i][0] != lists.count()) {
    throw std::invalid_argument(std::string(name) + " must have a row for each of " +
                                std::to_string(lists.count()) + " lists, got " + args.ShapeText(i));
  }
  return width;
}

}  // namespace msrec
