// SPDX-License-Identifier: Apache-2.0
//
// The element-wise loops. Included once by each elementwise_<isa>.cc. Everything here has internal
// linkage and uses no inline function of another header but `Block`'s members, which are inlined:
// a function shared with other files could be linked in its AVX-512 form and run on a CPU without
// it.
#include "dense/elementwise.h"
#include "dense/mixture_kernels.inl"
#include "dense/pair_kernels.inl"

namespace msrec {
namespace {

MSREC_INLINE float* RowOf(const Block& block, int64_t r) { return block.data + r * block.ld; }

// ---------------------------------------------------------------- functions of one number

MSREC_INLINE float AsFloat(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}

MSREC_INLINE uint32_t AsBits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

MSREC_INLINE uint32_t Rounded(float x) {
  const uint32_t bits = AsBits(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40;
  return (bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded;
}

// exp(x) to 2 units in the last place; 0 below -87.3, infinite above 88.7.
MSREC_INLINE float Exp(float x) {
  constexpr float kMost = 88.7228f;
  constexpr float kLeast = -87.3365f;
  float bounded = x < kMost ? x : kMost;
  bounded = bounded > kLeast ? bounded : kLeast;
  // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
  const float shifted = bounded * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^n in two factors: n may be 128.
  const int32_t e = static_cast<int32_t>(AsBits(shifted)) - 0x4b400000;
  const int32_t half = e >> 1;
  const float value = p * AsFloat(static_cast<uint32_t>(half + 127) << 23) *
                      AsFloat(static_cast<uint32_t>(e - half + 127) << 23);
  const float high = x > kMost ? __builtin_inff() : value;
  const float low = x < kLeast ? 0.0f : high;
  return x == x ? low : x;
}

MSREC_INLINE float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

MSREC_INLINE float Tanh(float x) {
  const float magnitude = __builtin_fabsf(x);
  const float far = 1.0f - 2.0f / (Exp(2.0f * magnitude) + 1.0f);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = p * z * magnitude + magnitude;
  const float value = magnitude < 0.625f ? near : far;
  const float signed_value = x < 0.0f ? -value : value;
  return x == x ? signed_value : x;
}

constexpr float kGeluScale = 0.797884561f;  // sqrt(2 / pi)
constexpr float kGeluCube = 0.044715f;
constexpr float kLeak = 0.2f;  // of mindspore.nn.LeakyReLU

// x where tanh is not yet 1 in float32: beyond, powers of x would overflow.
MSREC_INLINE float GeluBounded(float x) {
  const float below = x < 10.0f ? x : 10.0f;
  const float bounded = below > -10.0f ? below : -10.0f;
  return x == x ? bounded : x;
}

MSREC_INLINE float Gelu(float x) {
  const float bounded = GeluBounded(x);
  const float t = Tanh(kGeluScale * (bounded + kGeluCube * bounded * bounded * bounded));
  return 0.5f * (x < -10.0f ? bounded : x) * (1.0f + t);
}

MSREC_INLINE float GeluSlope(float any) {
  const float x = GeluBounded(any);
  const float t = Tanh(kGeluScale * (x + kGeluCube * x * x * x));
  const float inner = kGeluScale * (1.0f + 3.0f * kGeluCube * x * x);
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
}

// Each activation, and its slope in terms of what it returned.
struct None {
  MSREC_INLINE float Value(float x) { return x; }
  MSREC_INLINE float Gradient(float, float g) { return g; }
};
struct Relu {
  // NaN of NaN: MindSpore's gives 0, which would hide it from the loss. A comparison with NaN is
  // false, so these keep it by as many instructions as the other way round.
  MSREC_INLINE float Value(float x) { return 0.0f > x ? 0.0f : x; }
  MSREC_INLINE float Gradient(float y, float g) { return y <= 0.0f ? 0.0f : g; }
};
struct LeakyRelu {
  MSREC_INLINE float Value(float x) { return x > 0.0f ? x : kLeak * x; }
  // As MindSpore's, which takes the larger of x and kLeak x: of 0 the mean of both slopes.
  MSREC_INLINE float Gradient(float y, float g) {
    const float below = y < 0.0f ? kLeak * g : 0.5f * (1.0f + kLeak) * g;
    return y > 0.0f ? g : below;
  }
};
struct TanhOf {
  MSREC_INLINE float Value(float x) { return Tanh(x); }
  MSREC_INLINE float Gradient(float y, float g) { return g * (1.0f - y * y); }
};
struct SigmoidOf {
  MSREC_INLINE float Value(float x) { return Sigmoid(x); }
  MSREC_INLINE float Gradient(float y, float g) { return g * (y * (1.0f - y)); }
};

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

void Multiply(const float* a, int64_t width, float* x) {
  const float* __restrict factor = a;
  float* __restrict out = x;
  for (int64_t j = 0; j < width; ++j) out[j] *= factor[j];
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

namespace msrec {

extern const Elementwise MSREC_ELEMENTWISE_SYMBOL;
const Elementwise MSREC_ELEMENTWISE_SYMBOL = {MSREC_ELEMENTWISE_NAME,
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
                                              Multiply,
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
                                              CrossCombineGradient,
                                              CrossRowsForward,
                                              CrossRowsGradient,
                                              SquaredDeviations,
                                              Normalize,
                                              NormalizedGradient,
                                              NormalizeGradient};

}  // namespace msrec
