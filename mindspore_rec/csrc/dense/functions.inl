// SPDX-License-Identifier: Apache-2.0
//
// Functions of one number, and activations, for the loops of the host (elementwise.inl) and for the
// kernels of a GPU (cuda/kernels.inl).
#pragma once

#include "dense/inline.h"

namespace msrec {
namespace {

#ifdef __CUDACC_RTC__
MSREC_INLINE float AsFloat(uint32_t bits) { return __uint_as_float(bits); }
MSREC_INLINE uint32_t AsBits(float x) { return __float_as_uint(x); }
MSREC_INLINE float Magnitude(float x) { return fabsf(x); }
MSREC_INLINE float SquareRoot(float x) { return sqrtf(x); }
#else
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
MSREC_INLINE float Magnitude(float x) { return __builtin_fabsf(x); }
MSREC_INLINE float SquareRoot(float x) { return __builtin_sqrtf(x); }
#endif
MSREC_INLINE float Infinity() { return AsFloat(0x7f800000); }

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
  const float high = x > kMost ? Infinity() : value;
  const float low = x < kLeast ? 0.0f : high;
  return x == x ? low : x;
}

MSREC_INLINE float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

MSREC_INLINE float Tanh(float x) {
  const float magnitude = Magnitude(x);
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

// Sine and cosine of 2 pi t.
struct SineAndCosine {
  float sine, cosine;
};

// sin(2 pi u) for u in [-0.25, 0.25].
MSREC_INLINE float SineOfTurns(float u) {
  const float z = u * u;
  float p = 3.971091779e+1f;
  p = p * z - 7.657499228e+1f;
  p = p * z + 8.160223125e+1f;
  p = p * z - 4.134167748e+1f;
  p = p * z + 6.283185274f;
  return p * u;
}

// To 2e-7. Beyond 2^22 turns, floats no longer tell the parts of a turn, and t counts as whole.
MSREC_INLINE SineAndCosine WaveOf(float t) {
  const float whole = (t + 12582912.0f) - 12582912.0f;
  const float rest = t - (Magnitude(t) > 4194304.0f ? t : whole);  // NaN of NaN and of infinity
  const float magnitude = Magnitude(rest);
  const float folded = magnitude > 0.25f ? 0.5f - magnitude : magnitude;
  const float sine = SineOfTurns(folded);
  return {rest < 0.0f ? -sine : sine, SineOfTurns(0.25f - magnitude)};
}

// Place of a number on a curve of straight pieces between the knots 0 to `bins`: the knot below,
// and the share of the way to the next knot. Beyond both ends, the share is not in [0, 1].
struct CurvePlace {
  int64_t knot;
  float share;
};

// The knots divide [-1, 1] equally. NaN has the share NaN.
MSREC_INLINE CurvePlace PlaceOnCurve(float x, int64_t bins) {
  const float place = (x + 1.0f) * (0.5f * static_cast<float>(bins));
  const float last = static_cast<float>(bins - 1);
  const float low = place > 0.0f ? place : 0.0f;
  const int32_t knot = static_cast<int32_t>(low < last ? low : last);
  return {knot, place - static_cast<float>(knot)};
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

}  // namespace
}  // namespace msrec
