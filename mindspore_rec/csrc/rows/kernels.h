// SPDX-License-Identifier: Apache-2.0
//
// The loops over the floats of a row. The loops are compiled once per instruction set, and the
// instruction set is chosen at the first use. The results of all instruction sets are identical,
// bit for bit, because no loop uses fused multiply-adds and every reduction adds in one fixed
// order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "init/initializer.h"
#include "util/number_type.h"

// MSREC_VECTOR_SETS is defined if the loops are compiled not only for the portable set, but also
// for the vector instruction sets of x86-64.
#if defined(__x86_64__) && !defined(MSREC_BASE_SET_ONLY)
#define MSREC_VECTOR_SETS
#endif

namespace msrec {

struct StepConstants;  // rows/step_constants.h

// The kernels that read and write rows, for one type of values and one type of states. All
// arithmetic is in float32. Arrays other than rows are float32, except for bfloat16 outputs.
struct RowKernels {
  // For i in [0, n), writes the value of rows[inverse[i]] to out[pos[i]]. If the row is null,
  // writes default_row.
  void (*gather)(char* const* rows, const uint32_t* inverse, const uint32_t* pos, size_t n,
                 const float* default_row, int dim, float* out);

  // out = scale * sum over i of weight[i] * rows[index[i]]. If `weight` is null, all weights are 1.
  // If rows[index[i]] is null, the row's value is the array `default_row`.
  void (*pool)(char* const* rows, const uint32_t* index, const float* weight, size_t n,
               const float* default_row, float scale, int dim, float* out);

  // Applies one optimizer step to each row that is not null. `sums` contains a gradient of dim
  // floats for each row.
  void (*step)(const StepConstants& c, int dim, char* const* rows, const float* sums, size_t n);

  // Updates rows whose value and state are in separate float32 arrays. The results are rounded to
  // the types of the table's rows. If a pointer in `values` is null, the row is skipped.
  void (*step_apart)(const StepConstants& c, int dim, const int64_t* keys, float* const* values,
                     float* const* states, const float* sums, size_t n);

  // Does the same as gather, but writes bfloat16. Copies the elements of bfloat16 rows, and rounds
  // the elements of other rows to the nearest bfloat16, ties to even.
  void (*gather_bfloat16)(char* const* rows, const uint32_t* inverse, const uint32_t* pos, size_t n,
                          const float* default_row, int dim, uint16_t* out);
};

struct Kernels {
  const char* name;  // "avx512", "avx2", "base"

  // The first index is the type of the values. The second index is the type of the states, float32
  // or bfloat16.
  RowKernels rows[3][2];

  const RowKernels& RowsOf(NumberType value, NumberType state) const {
    return rows[static_cast<int>(value)][static_cast<int>(state)];
  }

  // Adds scale[pos[i]] * grad[source[pos[i]]] to sums[slot[i]], in the order of i. If `source` is
  // null, adds row pos[i] of `grad`. If `scale` is null, all scales are 1.
  void (*accumulate)(const uint32_t* slot, const uint32_t* pos, size_t n, const float* grad,
                     const uint32_t* source, const float* scale, int dim, float* sums);

  // Does the same as accumulate for a gradient in bfloat16. The result is identical, bit for bit,
  // to converting the gradient to float32 and then calling accumulate.
  void (*accumulate_bfloat16)(const uint32_t* slot, const uint32_t* pos, size_t n,
                              const uint16_t* grad, const uint32_t* source, const float* scale,
                              int dim, float* sums);

  // Returns the sum of squares of the gradients, leaving out the gradients of null rows. Squares
  // are added in a fixed order.
  double (*squared_norm)(int dim, char* const* rows, const float* sums, size_t n);

  // Updates n elements of a dense parameter by one optimizer step. The arguments are values w,
  // gradients g, and one array of n floats for each state of the rule. `states` has three pointers;
  // the rule uses only the first Rule::StateWidth(1) pointers. Each element is updated
  // independently, so the rule must not be kRowWiseAdagrad.
  void (*step_dense)(const StepConstants& c, int n, float* w, float* const* states, const float* g);

  // Returns the sum of squares of n numbers, added in a fixed order.
  double (*sum_of_squares)(const float* g, size_t n);

  // Writes the first value for `key` to `out`.
  void (*initialize)(const Initializer& init, int64_t key, int dim, float* out);

  // Element 0 is the function for rows of int8, and element 1 is the function for rows of int4.
  // Each function computes out = factor * sum over i of weight[i] * rows[i]. If `weight` is null,
  // all weights are 1. If rows[i] is null, the row's value is the array `unknown`. Each pointer in
  // `rows` is the address of a row's scale (rows/quantised_row.h).
  void (*pool_quantised[2])(const char* const* rows, const float* weight, size_t n,
                            const float* unknown, float factor, int dim, float* out);
};

// Returns the kernels for the instruction set in the environment variable MINDSPORE_REC_SIMD
// (avx512, avx2, base). If the variable is not set or names an instruction set that this CPU or
// build does not support, returns the kernels for the best instruction set of this CPU.
const Kernels& ActiveKernels();

// Returns the kernels for the instruction set `name`, or null if this CPU or build does not support
// that instruction set. For tests.
const Kernels* FindKernels(const char* name);

}  // namespace msrec
