// SPDX-License-Identifier: Apache-2.0
//
// The row kernels. Included once by each kernels_<isa>.cc. Everything here has internal linkage and
// uses no inline function of another header unless that is always inlined: a function shared with
// other files could be linked in its AVX-512 form and run on a CPU without it.
#include "rows/kernels.h"
#include "rows/row_layout.h"
#include "rows/step_constants.h"
#include "util/bfloat16.h"
#include "util/float16.h"

#if defined(__SSE4_1__) || defined(__F16C__)
#include <immintrin.h>
#endif

namespace msrec {
namespace {

#ifdef MSREC_SANITIZED
// Functions of their own: with all checks written out at each call, compiling takes twice as long.
#define MSREC_INLINE static inline
#else
#define MSREC_INLINE static inline __attribute__((always_inline))
#endif

constexpr size_t kHeader = sizeof(RowMeta);
constexpr int kLine = 64;

MSREC_INLINE void PrefetchRow(const char* row, size_t bytes) {
  // Past this the hardware prefetcher has caught on.
  const size_t limit = bytes < 512 ? bytes : 512;
  for (size_t b = 0; b < limit; b += kLine) __builtin_prefetch(row + b, 1);
  __builtin_prefetch(row + limit - 1, 1);
}

// Calls call(D). D is `dim` if `dim` is one of the common sizes below, otherwise 0.
#define MSREC_FOR_DIM(dim, call) \
  switch (dim) {                 \
    case 4:                      \
      call(4);                   \
      break;                     \
    case 8:                      \
      call(8);                   \
      break;                     \
    case 16:                     \
      call(16);                  \
      break;                     \
    case 32:                     \
      call(32);                  \
      break;                     \
    case 64:                     \
      call(64);                  \
      break;                     \
    default:                     \
      call(0);                   \
  }

// ---------------------------------------------------------------- gather, accumulate, pool

template <int D>
void GatherDim(char* const* rows, const uint32_t* inverse, const uint32_t* pos, size_t n,
               const float* default_row, int dim_arg, float* out) {
  const int dim = D != 0 ? D : dim_arg;
  constexpr size_t kAhead = 12;
  for (size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) {
      const float* next = out + static_cast<size_t>(pos[i + kAhead]) * dim;
      __builtin_prefetch(next, 1);
      if (dim > 16) __builtin_prefetch(next + 16, 1);
    }
    const char* row = rows[inverse[i]];
    const void* value = row != nullptr ? static_cast<const void*>(row + kHeader) : default_row;
    __builtin_memcpy(out + static_cast<size_t>(pos[i]) * dim, value, sizeof(float) * dim);
  }
}

void Gather(char* const* rows, const uint32_t* inverse, const uint32_t* pos, size_t n,
            const float* default_row, int dim, float* out) {
#define CALL(D) GatherDim<D>(rows, inverse, pos, n, default_row, dim, out)
  MSREC_FOR_DIM(dim, CALL)
#undef CALL
}

template <int D>
void AccumulateDim(const uint32_t* slot, const uint32_t* pos, size_t n, const float* grad,
                   const uint32_t* source, const float* scale, int dim_arg, float* sums) {
  const int dim = D != 0 ? D : dim_arg;
  constexpr size_t kAhead = 12;
  for (size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) {
      const uint32_t p = pos[i + kAhead];
      const float* next = grad + static_cast<size_t>(source != nullptr ? source[p] : p) * dim;
      __builtin_prefetch(next);
      if (dim > 16) __builtin_prefetch(next + 16);
    }
    const uint32_t p = pos[i];
    const float* __restrict g = grad + static_cast<size_t>(source != nullptr ? source[p] : p) * dim;
    float* __restrict s = sums + static_cast<size_t>(slot[i]) * dim;
    if (scale == nullptr) {
      for (int j = 0; j < dim; ++j) s[j] += g[j];
    } else {
      const float w = scale[p];
      for (int j = 0; j < dim; ++j) s[j] += w * g[j];
    }
  }
}

void Accumulate(const uint32_t* slot, const uint32_t* pos, size_t n, const float* grad,
                const uint32_t* source, const float* scale, int dim, float* sums) {
#define CALL(D) AccumulateDim<D>(slot, pos, n, grad, source, scale, dim, sums)
  MSREC_FOR_DIM(dim, CALL)
#undef CALL
}

void Pool(char* const* rows, const uint32_t* index, const float* weight, size_t n,
          const float* default_row, float scale, int dim, float* out) {
  for (int j = 0; j < dim; ++j) out[j] = 0.0f;
  for (size_t i = 0; i < n; ++i) {
    const char* row = rows[index[i]];
    const float* value =
        row != nullptr ? reinterpret_cast<const float*>(row + kHeader) : default_row;
    const float w = weight != nullptr ? weight[i] : 1.0f;
    for (int j = 0; j < dim; ++j) out[j] += w * value[j];
  }
  for (int j = 0; j < dim; ++j) out[j] *= scale;
}

// ---------------------------------------------------------------- optimizer rules
//
// Each updates n elements: w values, s0 to s2 the states of the rule, raw gradients. In all:
// g = grad_scale * raw, and g += weight_decay * w unless the decay is decoupled (AdamW). A row of a
// table has its states one after the other; rows without a gradient are never visited ("lazy").
// States is how many of them there are for each element.

// Returns what weight decay adds for that weight. Without decay it is the zero that a decay of 0
// gives, but for infinite weights, which a decay of 0 would turn into NaN.
template <bool kDecays>
MSREC_INLINE float Decay(float weight_decay, float w) {
  return kDecays ? weight_decay * w : __builtin_copysignf(0.0f, w);
}

struct Sgd {
  MSREC_INLINE int States(const Rule&) { return 0; }
  template <bool kDecays>
  MSREC_INLINE void Apply(const StepConstants& c, int n, float* __restrict w, float*, float*,
                          float*, const float* __restrict raw) {
    const float lr = c.in.learning_rate;
    for (int j = 0; j < n; ++j) {
      const float g = c.in.grad_scale * raw[j] + Decay<kDecays>(c.in.weight_decay, w[j]);
      w[j] -= lr * g;
    }
  }
};

struct Momentum {
  MSREC_INLINE int States(const Rule&) { return 1; }
  template <bool kDecays>
  MSREC_INLINE void Apply(const StepConstants& c, int n, float* __restrict w, float* __restrict m,
                          float*, float*, const float* __restrict raw) {
    const float lr = c.in.learning_rate;
    const float mu = c.rule.momentum;
    const bool nesterov = c.rule.nesterov;
    for (int j = 0; j < n; ++j) {
      const float g = c.in.grad_scale * raw[j] + Decay<kDecays>(c.in.weight_decay, w[j]);
      const float moved = mu * m[j] + g;
      m[j] = moved;
      w[j] -= lr * (nesterov ? g + mu * moved : moved);
    }
  }
};

struct Adagrad {
  MSREC_INLINE int States(const Rule&) { return 1; }
  template <bool kDecays>
  MSREC_INLINE void Apply(const StepConstants& c, int n, float* __restrict w, float* __restrict a,
                          float*, float*, const float* __restrict raw) {
    const float lr = c.in.learning_rate;
    const float eps = c.rule.epsilon;
    for (int j = 0; j < n; ++j) {
      const float g = c.in.grad_scale * raw[j] + Decay<kDecays>(c.in.weight_decay, w[j]);
      const float sum = a[j] + g * g;
      a[j] = sum;
      w[j] -= lr * g / (__builtin_sqrtf(sum) + eps);
    }
  }
};

// Sum in eight fixed lanes, so that every instruction set adds in the same order.
MSREC_INLINE float LaneSum(const float* lane) {
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

// Of rows only: one accumulator for all n elements.
struct RowWiseAdagrad {
  MSREC_INLINE int States(const Rule&) { return 0; }
  template <bool kDecays>
  MSREC_INLINE void Apply(const StepConstants& c, int n, float* __restrict w, float* __restrict a,
                          float*, float*, const float* __restrict raw) {
    float lane[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int j = 0; j < n; ++j) {
      const float g = c.in.grad_scale * raw[j] + Decay<kDecays>(c.in.weight_decay, w[j]);
      lane[j & 7] += g * g;
    }
    const float sum = a[0] + LaneSum(lane) / static_cast<float>(n);
    a[0] = sum;
    const float rate = c.in.learning_rate / (__builtin_sqrtf(sum) + c.rule.epsilon);
    for (int j = 0; j < n; ++j) {
      const float g = c.in.grad_scale * raw[j] + Decay<kDecays>(c.in.weight_decay, w[j]);
      w[j] -= rate * g;
    }
  }
};

struct Adam {
  MSREC_INLINE int States(const Rule&) { return 2; }
  template <bool kDecays>
  MSREC_INLINE void Apply(const StepConstants& c, int n, float* __restrict w, float* __restrict m,
                          float* __restrict v, float*, const float* __restrict raw) {
    const float b1 = c.rule.beta1;
    const float b2 = c.rule.beta2;
    const float one_b1 = 1.0f - b1;
    const float one_b2 = 1.0f - b2;
    const float lr = c.adam_lr;
    const float eps = c.adam_eps;
    const float shrink =
        c.rule.kind == RuleKind::kAdamW ? c.in.learning_rate * c.in.weight_decay : 0.0f;
    const float coupled = c.rule.kind == RuleKind::kAdamW ? 0.0f : c.in.weight_decay;
    const bool nesterov = c.rule.nesterov;
    for (int j = 0; j < n; ++j) {
      const float g = c.in.grad_scale * raw[j] + Decay<kDecays>(coupled, w[j]);
      const float m1 = b1 * m[j] + one_b1 * g;
      const float v1 = b2 * v[j] + one_b2 * g * g;
      m[j] = m1;
      v[j] = v1;
      const float move = nesterov ? b1 * m1 + one_b1 * g : m1;
      w[j] = (w[j] - Decay<kDecays>(shrink, w[j])) - lr * move / (__builtin_sqrtf(v1) + eps);
    }
  }
};

struct Ftrl {
  MSREC_INLINE int States(const Rule&) { return 2; }
  template <bool kDecays>
  MSREC_INLINE void Apply(const StepConstants& c, int count, float* __restrict w,
                          float* __restrict n, float* __restrict z, float*,
                          const float* __restrict raw) {
    const float lr = c.in.learning_rate;
    const float l1 = c.rule.l1;
    const float l2x2 = c.ftrl_l2x2;
    if (c.rule.lr_power == -0.5f) {
      for (int j = 0; j < count; ++j) {
        const float g = c.in.grad_scale * raw[j] + Decay<kDecays>(c.in.weight_decay, w[j]);
        const float n1 = n[j] + g * g;
        const float root = __builtin_sqrtf(n1);
        const float z1 = z[j] + g - (root - __builtin_sqrtf(n[j])) / lr * w[j];
        n[j] = n1;
        z[j] = z1;
        const float toward = (z1 > 0.0f ? l1 : -l1) - z1;
        const float moved = toward / (root / lr + l2x2);
        w[j] = __builtin_fabsf(z1) > l1 ? moved : 0.0f;
      }
      return;
    }
    for (int j = 0; j < count; ++j) {
      const float g = c.in.grad_scale * raw[j] + Decay<kDecays>(c.in.weight_decay, w[j]);
      const float n1 = n[j] + g * g;
      const float root = __builtin_powf(n1, -c.rule.lr_power);
      const float z1 = z[j] + g - (root - __builtin_powf(n[j], -c.rule.lr_power)) / lr * w[j];
      n[j] = n1;
      z[j] = z1;
      const float toward = (z1 > 0.0f ? l1 : -l1) - z1;
      w[j] = __builtin_fabsf(z1) > l1 ? toward / (root / lr + l2x2) : 0.0f;
    }
  }
};

struct RmsProp {
  MSREC_INLINE int States(const Rule& rule) { return rule.centered ? 3 : 2; }
  template <bool kDecays>
  MSREC_INLINE void Apply(const StepConstants& c, int n, float* __restrict w, float* __restrict ms,
                          float* __restrict mom, float* __restrict mg,
                          const float* __restrict raw) {
    const float lr = c.in.learning_rate;
    const float decay = c.rule.decay;
    const float keep = 1.0f - decay;
    const float mu = c.rule.momentum;
    const float eps = c.rule.epsilon;
    const bool centered = c.rule.centered;
    for (int j = 0; j < n; ++j) {
      const float g = c.in.grad_scale * raw[j] + Decay<kDecays>(c.in.weight_decay, w[j]);
      const float ms1 = decay * ms[j] + keep * g * g;
      ms[j] = ms1;
      float variance = ms1;
      if (centered) {
        const float mg1 = decay * mg[j] + keep * g;
        mg[j] = mg1;
        const float centred = ms1 - mg1 * mg1;
        variance = centred > 0.0f ? centred : 0.0f;  // rounding may leave it below
      }
      const float moved = mu * mom[j] + lr * g / __builtin_sqrtf(variance + eps);
      mom[j] = moved;
      w[j] -= moved;
    }
  }
};

// Updates one row: w value, s its states.
template <typename R>
MSREC_INLINE void UpdateRow(const StepConstants& c, int dim, float* w, float* s, const float* raw) {
  R::template Apply<true>(c, dim, w, s, s + dim, s + 2 * dim, raw);
}

template <typename R, int D>
void StepDim(const StepConstants& c, int dim_arg, char* const* rows, const float* sums, size_t n) {
  const int dim = D != 0 ? D : dim_arg;
  constexpr size_t kAhead = 6;
  size_t bytes = kHeader + sizeof(float) * dim;
  bytes += c.rule.kind == RuleKind::kSgd ? 0 : sizeof(float) * 2 * dim;
  for (size_t i = 0; i < n; ++i) {
    if (i + kAhead < n && rows[i + kAhead] != nullptr) PrefetchRow(rows[i + kAhead], bytes);
    if (rows[i] == nullptr) continue;
    float* value = reinterpret_cast<float*>(rows[i] + kHeader);
    UpdateRow<R>(c, dim, value, value + dim, sums + i * dim);
  }
}

template <typename R>
void StepRule(const StepConstants& c, int dim, char* const* rows, const float* sums, size_t n){
#define CALL(D) StepDim<R, D>(c, dim, rows, sums, n)
    MSREC_FOR_DIM(dim, CALL)
#undef CALL
}

// Calls call(rule's struct).
#define MSREC_FOR_RULE(kind, call)  \
  switch (kind) {                   \
    case RuleKind::kNone:           \
      break;                        \
    case RuleKind::kSgd:            \
      call(Sgd);                    \
      break;                        \
    case RuleKind::kMomentum:       \
      call(Momentum);               \
      break;                        \
    case RuleKind::kAdagrad:        \
      call(Adagrad);                \
      break;                        \
    case RuleKind::kRowWiseAdagrad: \
      call(RowWiseAdagrad);         \
      break;                        \
    case RuleKind::kAdam:           \
    case RuleKind::kAdamW:          \
      call(Adam);                   \
      break;                        \
    case RuleKind::kFtrl:           \
      call(Ftrl);                   \
      break;                        \
    case RuleKind::kRmsProp:        \
      call(RmsProp);                \
      break;                        \
  }

void Step(const StepConstants& c, int dim, char* const* rows, const float* sums, size_t n) {
#define CALL(R) StepRule<R>(c, dim, rows, sums, n)
  MSREC_FOR_RULE(c.rule.kind, CALL)
#undef CALL
}

template <typename R, int D>
void StepApartDim(const StepConstants& c, int dim_arg, float* const* values, float* const* states,
                  const float* sums, size_t n) {
  const int dim = D != 0 ? D : dim_arg;
  constexpr size_t kAhead = 6;
  const size_t bytes = sizeof(float) * dim;
  const size_t state_bytes = c.rule.kind == RuleKind::kSgd ? sizeof(float) : 2 * bytes;
  for (size_t i = 0; i < n; ++i) {
    if (i + kAhead < n && values[i + kAhead] != nullptr) {
      PrefetchRow(reinterpret_cast<const char*>(values[i + kAhead]), bytes);
      PrefetchRow(reinterpret_cast<const char*>(states[i + kAhead]), state_bytes);
    }
    if (values[i] != nullptr) UpdateRow<R>(c, dim, values[i], states[i], sums + i * dim);
  }
}

template <typename R>
void StepApartRule(const StepConstants& c, int dim, float* const* values, float* const* states,
                   const float* sums, size_t n) {
#define CALL(D) StepApartDim<R, D>(c, dim, values, states, sums, n)
  MSREC_FOR_DIM(dim, CALL)
#undef CALL
}

void StepApart(const StepConstants& c, int dim, const int64_t*, float* const* values,
               float* const* states, const float* sums, size_t n) {
#define CALL(R) StepApartRule<R>(c, dim, values, states, sums, n)
  MSREC_FOR_RULE(c.rule.kind, CALL)
#undef CALL
}

template <typename R>
void StepDenseRule(const StepConstants& c, int n, float* w, float* const* s, const float* g) {
  if (c.in.weight_decay != 0.0f) {
    R::template Apply<true>(c, n, w, s[0], s[1], s[2], g);
  } else {
    R::template Apply<false>(c, n, w, s[0], s[1], s[2], g);
  }
}

void StepDense(const StepConstants& c, int n, float* w, float* const* states, const float* g) {
#define CALL(R) StepDenseRule<R>(c, n, w, states, g)
  MSREC_FOR_RULE(c.rule.kind, CALL)
#undef CALL
}

#include "rows/narrow.inl"

double SumOfSquares(const float* g, size_t n) {
  constexpr size_t kLanes = 16;
  double lane[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const double x = g[i + l];
      lane[l] += x * x;
    }
  }
  for (size_t l = 0; i + l < n; ++l) {
    const double x = g[i + l];
    lane[l] += x * x;
  }
  double sum = 0.0;
  for (size_t l = 0; l < kLanes; ++l) sum += lane[l];
  return sum;
}

double SquaredNorm(int dim, char* const* rows, const float* sums, size_t n) {
  double lane[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  for (size_t i = 0; i < n; ++i) {
    if (rows[i] == nullptr) continue;
    const float* g = sums + i * dim;
    for (int j = 0; j < dim; ++j) lane[j & 7] += static_cast<double>(g[j]) * g[j];
  }
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

// ---------------------------------------------------------------- first values

#include "init/first_values.inl"

// ---------------------------------------------------------------- rows of int8 and int4

#include "rows/quantised_kernels.inl"

}  // namespace

extern const Kernels MSREC_KERNELS_SYMBOL;
const Kernels MSREC_KERNELS_SYMBOL = {
    MSREC_KERNELS_NAME,
    {{{Gather, Pool, Step, StepApart, GatherBfloat16<Float32>}, NarrowRows<Float32, Bfloat16>()},
     {NarrowRows<Bfloat16, Float32>(), NarrowRows<Bfloat16, Bfloat16>()},
     {NarrowRows<Float16, Float32>(), NarrowRows<Float16, Bfloat16>()}},
    Accumulate,
    AccumulateBfloat16,
    SquaredNorm,
    StepDense,
    SumOfSquares,
    Initialize,
    {PoolQuantised<8>, PoolQuantised<4>}};

}  // namespace msrec
