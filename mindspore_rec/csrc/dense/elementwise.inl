// SPDX-License-Identifier: Apache-2.0
//
// The element-wise loops. Included once by each elementwise_<isa>.cc. Everything here has internal
// linkage and uses no inline function of another header but `Block`'s members, which are inlined:
// a function shared with other files could be linked in its AVX-512 form and run on a CPU without
// it.
#include "dense/elementwise.h"
#include "dense/functions.inl"
#include "dense/mixture_kernels.inl"
#include "dense/pair_kernels.inl"

namespace msrec {
namespace {

MSREC_INLINE float* RowOf(const Block& block, int64_t r) { return block.data + r * block.ld; }

// ---------------------------------------------------------------- copies

void Copy(int64_t rows, int64_t width, Block from, Block to) {
  for (int64_t r = 0; r < rows; ++r) {
    __builtin_memcpy(RowOf(to, r), RowOf(from, r), sizeof(float) * static_cast<size_t>(width));
  }
}

void Clear(int64_t rows, int64_t width, Block x) {
  for (int64_t r = 0; r < rows; ++r) {
    __builtin_memset(RowOf(x, r), 0, sizeof(float) * static_cast<size_t>(width));
  }
}

void WidenBfloat16(int64_t rows, int64_t width, const uint16_t* from, int64_t from_ld, Block to) {
  for (int64_t r = 0; r < rows; ++r) {
    const uint16_t* __restrict in = from + r * from_ld;
    float* __restrict out = RowOf(to, r);
    for (int64_t j = 0; j < width; ++j) out[j] = AsFloat(static_cast<uint32_t>(in[j]) << 16);
  }
}

void Spread(int64_t rows, int64_t width, Block column, Block to) {
  for (int64_t r = 0; r < rows; ++r) {
    const float x = *RowOf(column, r);
    float* __restrict out = RowOf(to, r);
    for (int64_t j = 0; j < width; ++j) out[j] = x;
  }
}

// ---------------------------------------------------------------- activations

template <typename A>
void ActivateBy(const float* bias, int64_t rows, int64_t width, Block x) {
  for (int64_t r = 0; r < rows; ++r) {
    float* __restrict row = RowOf(x, r);
    if (bias != nullptr) {
      for (int64_t j = 0; j < width; ++j) row[j] = A::Value(row[j] + bias[j]);
    } else {
      for (int64_t j = 0; j < width; ++j) row[j] = A::Value(row[j]);
    }
  }
}

template <typename A>
void GradientBy(int64_t rows, int64_t width, Block output, Block gradient, float* bias_sums) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict y = RowOf(output, r);
    float* __restrict g = RowOf(gradient, r);
    if (bias_sums != nullptr) {
      float* __restrict sums = bias_sums;
      for (int64_t j = 0; j < width; ++j) {
        const float below = A::Gradient(y[j], g[j]);
        g[j] = below;
        sums[j] += below;
      }
    } else {
      for (int64_t j = 0; j < width; ++j) g[j] = A::Gradient(y[j], g[j]);
    }
  }
}

#define MSREC_FOR_ACTIVATION(a, call) \
  switch (a) {                        \
    case Activation::kRelu:           \
      call(Relu);                     \
      break;                          \
    case Activation::kLeakyRelu:      \
      call(LeakyRelu);                \
      break;                          \
    case Activation::kTanh:           \
      call(TanhOf);                   \
      break;                          \
    case Activation::kSigmoid:        \
      call(SigmoidOf);                \
      break;                          \
    default:                          \
      call(None);                     \
  }

void Activate(Activation a, const float* bias, int64_t rows, int64_t width, Block x) {
  if (a == Activation::kNone && bias == nullptr) return;
#define CALL(A) ActivateBy<A>(bias, rows, width, x)
  MSREC_FOR_ACTIVATION(a, CALL)
#undef CALL
}

void ActivationGradient(Activation a, int64_t rows, int64_t width, Block output, Block gradient,
                        float* bias_sums) {
  if (a == Activation::kNone && bias_sums == nullptr) return;
#define CALL(A) GradientBy<A>(rows, width, output, gradient, bias_sums)
  MSREC_FOR_ACTIVATION(a, CALL)
#undef CALL
}

template <typename A>
void Bfloat16GradientBy(int64_t rows, int64_t width, const uint16_t* output, int64_t output_ld,
                        Block gradient, uint16_t* result, int64_t result_ld, float* bias_sums) {
  for (int64_t r = 0; r < rows; ++r) {
    const uint16_t* __restrict y = output + r * output_ld;
    const float* __restrict g = RowOf(gradient, r);
    uint16_t* __restrict out = result + r * result_ld;
    if (bias_sums != nullptr) {
      float* __restrict sums = bias_sums;
      for (int64_t j = 0; j < width; ++j) {
        const float below = A::Gradient(AsFloat(static_cast<uint32_t>(y[j]) << 16), g[j]);
        out[j] = static_cast<uint16_t>(Rounded(below));
        sums[j] += below;
      }
    } else {
      for (int64_t j = 0; j < width; ++j) {
        const float below = A::Gradient(AsFloat(static_cast<uint32_t>(y[j]) << 16), g[j]);
        out[j] = static_cast<uint16_t>(Rounded(below));
      }
    }
  }
}

void ActivationGradientBfloat16(Activation a, int64_t rows, int64_t width, const uint16_t* output,
                                int64_t output_ld, Block gradient, uint16_t* result,
                                int64_t result_ld, float* bias_sums) {
#define CALL(A) \
  Bfloat16GradientBy<A>(rows, width, output, output_ld, gradient, result, result_ld, bias_sums)
  MSREC_FOR_ACTIVATION(a, CALL)
#undef CALL
}

void GeluOf(int64_t rows, int64_t width, Block x, Block output) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict in = RowOf(x, r);
    float* __restrict out = RowOf(output, r);
    for (int64_t j = 0; j < width; ++j) out[j] = Gelu(in[j]);
  }
}

void GeluGradient(int64_t rows, int64_t width, Block x, Block gradient) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict in = RowOf(x, r);
    float* __restrict g = RowOf(gradient, r);
    for (int64_t j = 0; j < width; ++j) g[j] *= GeluSlope(in[j]);
  }
}

// ---------------------------------------------------------------- sums and rounding

void ColumnSums(int64_t rows, int64_t width, Block x, float* sums_out) {
  float* __restrict sums = sums_out;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict row = RowOf(x, r);
    for (int64_t j = 0; j < width; ++j) sums[j] += row[j];
  }
}

void RoundBfloat16(int64_t rows, int64_t width, Block x, uint16_t* output, int64_t ld) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict in = RowOf(x, r);
    uint16_t* __restrict out = output + r * ld;
    for (int64_t j = 0; j < width; ++j) out[j] = static_cast<uint16_t>(Rounded(in[j]));
  }
}

void RoundToFloat(int64_t rows, int64_t width, Block x, Block output) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = RowOf(x, r);  // may be the output
    float* out = RowOf(output, r);
    for (int64_t j = 0; j < width; ++j) out[j] = AsFloat(Rounded(in[j]) << 16);
  }
}

void MultiplyAdd(int64_t rows, int64_t width, Block a, Block b, Block c, Block output) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict x = RowOf(a, r);
    const float* __restrict y = RowOf(b, r);
    const float* __restrict z = RowOf(c, r);
    float* __restrict out = RowOf(output, r);
    for (int64_t j = 0; j < width; ++j) out[j] = x[j] * y[j] + z[j];
  }
}

void AddProduct(int64_t rows, int64_t width, Block a, Block b, Block output) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict x = RowOf(a, r);
    const float* __restrict y = RowOf(b, r);
    float* __restrict out = RowOf(output, r);
    for (int64_t j = 0; j < width; ++j) out[j] += x[j] * y[j];
  }
}

void MultiplyMasks(int64_t rows, int64_t width, const MaskRows& masks, Block x) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict mask = masks.data + (masks.first + r) % masks.count * width;
    float* __restrict out = RowOf(x, r);
    for (int64_t j = 0; j < width; ++j) out[j] *= mask[j];
  }
}

void Add(int64_t rows, int64_t width, Block a, Block output) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict x = RowOf(a, r);
    float* __restrict out = RowOf(output, r);
    for (int64_t j = 0; j < width; ++j) out[j] += x[j];
  }
}

// ---------------------------------------------------------------- softmax

void Softmax(int64_t rows, int64_t groups, int64_t group, Block x) {
  for (int64_t r = 0; r < rows; ++r) {
    float* __restrict row = RowOf(x, r);
    for (int64_t k = 0; k < groups; ++k) {
      float* __restrict v = row + k * group;
      float most = v[0];
      for (int64_t j = 1; j < group; ++j) most = v[j] > most ? v[j] : most;
      for (int64_t j = 0; j < group; ++j) v[j] -= most;
    }
    // Of the whole row: a group alone may be shorter than a vector.
    for (int64_t j = 0; j < groups * group; ++j) row[j] = Exp(row[j]);
    for (int64_t k = 0; k < groups; ++k) {
      float* __restrict v = row + k * group;
      float total = 0.0f;
      for (int64_t j = 0; j < group; ++j) total += v[j];
      const float scale = 1.0f / total;
      for (int64_t j = 0; j < group; ++j) v[j] *= scale;
    }
  }
}

void SoftmaxGradient(int64_t rows, int64_t groups, int64_t group, Block output, Block gradient) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < groups; ++k) {
      const float* __restrict y = RowOf(output, r) + k * group;
      float* __restrict g = RowOf(gradient, r) + k * group;
      float dot = 0.0f;
      for (int64_t j = 0; j < group; ++j) dot += y[j] * g[j];
      for (int64_t j = 0; j < group; ++j) g[j] = y[j] * (g[j] - dot);
    }
  }
}

}  // namespace
}  // namespace msrec

#include "dense/batch_norm_kernels.inl"
#include "dense/cross_kernels.inl"
#include "dense/loss_kernels.inl"
#include "dense/number_kernels.inl"

namespace msrec {

extern const Elementwise MSREC_ELEMENTWISE_SYMBOL;
const Elementwise MSREC_ELEMENTWISE_SYMBOL = {MSREC_ELEMENTWISE_NAME,
                                              Copy,
                                              Clear,
                                              WidenBfloat16,
                                              Spread,
                                              Activate,
                                              ActivationGradient,
                                              ActivationGradientBfloat16,
                                              GeluOf,
                                              GeluGradient,
                                              ColumnSums,
                                              RoundBfloat16,
                                              RoundToFloat,
                                              MultiplyAdd,
                                              AddProduct,
                                              MultiplyMasks,
                                              Add,
                                              Softmax,
                                              SoftmaxGradient,
                                              LogisticLoss,
                                              PairDots,
                                              PairDotsGradient,
                                              PairSums,
                                              PairSumsGradient,
                                              RowSums,
                                              Mix,
                                              MixUnitsGradient,
                                              MixGatesGradient,
                                              ScaleGroups,
                                              ScaleGroupsGradient,
                                              Curves,
                                              CurvesGradient,
                                              Waves,
                                              WavesGradient,
                                              CrossCombineGradient,
                                              CrossRowsForward,
                                              CrossRowsGradient,
                                              Divide,
                                              SquaredDeviations,
                                              Normalize,
                                              NormalizedGradient,
                                              NormalizeGradient};

}  // namespace msrec
