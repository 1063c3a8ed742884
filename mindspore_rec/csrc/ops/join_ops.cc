// SPDX-License-Identifier: Apache-2.0
//
// Operator that computes the gradient of a concatenation of matrices along the column axis.
// MindSpore's own gradient ends the process if the matrices have no rows.
#include <algorithm>
#include <vector>

#include "ops/operator.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

// Arguments 1, 2, ... are matrices [..., width] with the same number of rows; argument 0 has one
// element per matrix.
struct Matrices {
  explicit Matrices(const Args& args) {
    args.RequireAtLeast(2);
    args.DataAtLeast<int64_t>(0, "the count", 1);
    count = static_cast<int>(args.Size(0));
    args.RequireAtLeast(count + 2);
    for (int i = 0; i < count; ++i) {
      const int at = args.ndims[1 + i] - 1;
      if (at < 0 || !args.IsType(1 + i, "float32")) {
        throw std::invalid_argument("a matrix must be float32 [..., width], got " +
                                    args.ShapeText(1 + i) + " of " + args.dtypes[1 + i]);
      }
      begins.push_back(width);
      widths.push_back(args.shapes[1 + i][at]);
      width += widths.back();
      int64_t rows_of_matrix = 1;
      for (int d = 0; d < at; ++d) rows_of_matrix *= args.shapes[1 + i][d];
      if (i > 0 && rows_of_matrix != rows) {
        throw std::invalid_argument("joined matrices must have the same number of rows, got " +
                                    args.ShapeText(1) + " and " + args.ShapeText(1 + i));
      }
      rows = rows_of_matrix;
    }
  }

  int count = 0;
  int64_t rows = 0;
  int64_t width = 0;  // width of the joined matrix
  std::vector<int64_t> begins;
  std::vector<int64_t> widths;
};

}  // namespace
}  // namespace msrec

using msrec::Matrices;
using msrec::Shape;
using msrec::ThreadPool;

// (count [K], K matrices, gradient of the joined matrix) -> gradients of the matrices
MSREC_EXPORT std::vector<Shape> MsrJoinColumnsGradientInferShape(int* ndims, int64_t** shapes,
                                                                 void*) {
  std::vector<Shape> gradients;
  for (int i = 1; i <= msrec::Dimension(ndims, shapes, 0); ++i) {
    gradients.push_back(msrec::ShapeOf(ndims, shapes, i));
  }
  return gradients;
}
MSREC_OP(MsrJoinColumnsGradient) {
  const Matrices matrices(args);
  const int inputs = matrices.count + 2;
  args.RequireCount(inputs + matrices.count);
  const float* gradient = args.Data<float>(matrices.count + 1, "the gradient of the joined matrix",
                                           static_cast<size_t>(matrices.rows * matrices.width));
  std::vector<float*> gradients;
  for (int i = 0; i < matrices.count; ++i) {
    gradients.push_back(args.Data<float>(inputs + i, "the gradient of a matrix", args.Size(1 + i)));
  }
  constexpr int64_t kRowsOfTask = 256;
  const int64_t rows = matrices.rows;
  ThreadPool::Global().ParallelFor((rows + kRowsOfTask - 1) / kRowsOfTask, [&](int64_t task) {
    for (int64_t row = task * kRowsOfTask; row < std::min(rows, (task + 1) * kRowsOfTask); ++row) {
      for (size_t i = 0; i < gradients.size(); ++i) {
        const int64_t width = matrices.widths[i];
        std::copy_n(gradient + row * matrices.width + matrices.begins[i], width,
                    gradients[i] + row * width);
      }
    }
  });
}
