// SPDX-License-Identifier: Apache-2.0
//
// The loops over floats of a row, compiled once per instruction set and chosen when first used. All
// sets give the same bits: no fused multiply-add is formed and reductions keep one fixed order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "init/initializer.h"
#include "rows/rounding.h"
#include "rows/rule.h"
#include "util/number_type.h"

// Whether there are sets for the vectors of x86-64 beside the one for all processors.
#if defined(__x86_64__) && !defined(MSREC_BASE_SET_ONLY)
#define MSREC_VECTOR_SETS
#endif

namespace msrec {

// Constants of a row update, computed once a step.
struct StepConstants {
  Rule rule;
  StepInput in;
  float adam_lr;  // learning rate with both bias corrections
  float adam_eps;
  float ftrl_l2x2;
  Rounding rounding = {};  // of rows that are not float32
};

// Returns the constants of a step, with what the formulas need beside the rule and the input.
StepConstants MakeStepConstants(const Rule& rule, const StepInput& input);

// The kernels that read and write the numbers of rows, of one type of values and one of states.
// All other arrays, but for bfloat16 that go out, and the arithmetic are float32.
struct RowKernels {
  // out[pos[i]] = value of rows[inverse[i]], or default_row where that row is null; i in [0, n).
  void (*gather)(char* const* rows, const uint32_t* inverse, const uint32_t* pos, size_t n,
                 const float* default_row, int dim, float* out);

  // out = sum over i of weight[i] * rows[index[i]] (null weight: 1; null row: default_row), times
  // scale.
  void (*pool)(char* const* rows, const uint32_t* index, const float* weight, size_t n,
               const float* default_row, float scale, int dim, float* out);

  // Updates each row that is not null by one optimizer step; sums holds a gradient of dim floats
  // for each.
  void (*step)(const StepConstants& c, int dim, char* const* rows, const float* sums, size_t n);

  // Updates rows whose value and state are stored apart, as float32 that are rounded as the rows
  // are; a null value is no row.
  void (*step_apart)(const StepConstants& c, int dim, const int64_t* keys, float* const* values,
                     float* const* states, const float* sums, size_t n);

  // As gather, of numbers in bfloat16: copies of a row's own, else the nearest ones, of two the
  // even.
  void (*gather_bfloat16)(char* const* rows, const uint32_t* inverse, const uint32_t* pos, size_t n,
                          const float* default_row, int dim, uint16_t* out);
};

struct Kernels {
  const char* name;  // "avx512", "avx2", "base"

  // By type of values and of states; the state is float32 or bfloat16.
  RowKernels rows[3][2];

  const RowKernels& RowsOf(NumberType value, NumberType state) const {
    return rows[static_cast<int>(value)][static_cast<int>(state)];
  }

  // sums[slot[i]] += scale[pos[i]] * grad[source[pos[i]]] in order of i. Null source: pos itself;
  // null scale: 1.
  void (*accumulate)(const uint32_t* slot, const uint32_t* pos, size_t n, const float* grad,
                     const uint32_t* source, const float* scale, int dim, float* sums);

  // The same of a gradient in bfloat16, with the bits that its numbers as float32 would give.
  void (*accumulate_bfloat16)(const uint32_t* slot, const uint32_t* pos, size_t n,
                              const uint16_t* grad, const uint32_t* source, const float* scale,
                              int dim, float* sums);

  // Returns the sum of squares of the gradients of rows that are not null, in a fixed order.
  double (*squared_norm)(int dim, char* const* rows, const float* sums, size_t n);

  // Updates n elements that are of no table by one optimizer step: values w, gradients g, and an
  // array of n for each state of the rule (as many as Rule::StateWidth(1); the other pointers are
  // not read). Each element by itself: the rule must not be kRowWiseAdagrad.
  void (*step_dense)(const StepConstants& c, int n, float* w, float* const* states, const float* g);

  // Returns the sum of squares of n numbers, in a fixed order.
  double (*sum_of_squares)(const float* g, size_t n);

  // Writes the first value of key.
  void (*initialize)(const Initializer& init, int64_t key, int dim, float* out);

  // One function for rows of int8 and one for int4: out = factor * sum over i of
  // weight[i] * rows[i]. If `weight` is null, all weights are 1; a null row stands for `unknown`.
  // Rows point to their scale (rows/quantised_row.h).
  void (*pool_quantised[2])(const char* const* rows, const float* weight, size_t n,
                            const float* unknown, float factor, int dim, float* out);
};

// Returns the best set this CPU runs, or the one named by MINDSPORE_REC_SIMD (avx512, avx2, base).
const Kernels& ActiveKernels();

// Returns the set of that name, or null if this CPU or build lacks it. For tests.
const Kernels* FindKernels(const char* name);

}  // namespace msrec
