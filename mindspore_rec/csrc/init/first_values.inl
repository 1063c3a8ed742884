// SPDX-License-Identifier: Apache-2.0
//
// The kernel that draws a row's first values: a part of rows/kernels.inl, compiled once per
// instruction set. A file of its own, so that its test compiles no other kernel.

// Blocks of Philox computed together: a 32-bit word in each 64-bit lane, since compilers vectorise
// the widening product only in this form.
template <int kLanes>
struct PhiloxLanes;
template <>
struct PhiloxLanes<4> {
  typedef uint64_t Words __attribute__((vector_size(32)));
};
template <>
struct PhiloxLanes<8> {
  typedef uint64_t Words __attribute__((vector_size(64)));
};

// numbers[4 * b + w] is word w of block (first_block + b) of the row's stream, b < kLanes.
template <int kLanes>
MSREC_INLINE void Philox(uint64_t seed, int64_t key, uint32_t first_block,
                         uint32_t* __restrict numbers) {
  using Words = typename PhiloxLanes<kLanes>::Words;
  constexpr uint64_t kLow = 0xffffffffu;
  Words c0 = {}, c1 = {}, c2 = {}, c3 = {};
  for (int l = 0; l < kLanes; ++l) c0[l] = (first_block + static_cast<uint32_t>(l)) & kLow;
  c2 += static_cast<uint64_t>(key) & kLow;
  c3 += static_cast<uint64_t>(key) >> 32;
  uint32_t k0 = static_cast<uint32_t>(seed);
  uint32_t k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Words p0 = c0 * uint64_t{0xD2511F53u};
    const Words p1 = c2 * uint64_t{0xCD9E8D57u};
    c0 = (p1 >> 32) ^ c1 ^ uint64_t{k0};
    c2 = (p0 >> 32) ^ c3 ^ uint64_t{k1};
    c1 = p1 & kLow;
    c3 = p0 & kLow;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int l = 0; l < kLanes; ++l) {
    numbers[4 * l + 0] = static_cast<uint32_t>(c0[l]);
    numbers[4 * l + 1] = static_cast<uint32_t>(c1[l]);
    numbers[4 * l + 2] = static_cast<uint32_t>(c2[l]);
    numbers[4 * l + 3] = static_cast<uint32_t>(c3[l]);
  }
}

// Natural logarithm of a positive normal float, within 2 ulp (the polynomial of Cephes logf).
MSREC_INLINE float Log(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  // Mantissa into [sqrt(1/2), sqrt(2)).
  const uint32_t shifted = bits - 0x3f3504f3u;
  const int32_t exponent = static_cast<int32_t>(shifted) >> 23;
  const uint32_t mantissa = (shifted & 0x007fffffu) + 0x3f3504f3u;
  float f;
  __builtin_memcpy(&f, &mantissa, sizeof(f));
  f -= 1.0f;
  const float z = f * f;
  float y = 7.0376836292e-2f;
  y = y * f - 1.1514610310e-1f;
  y = y * f + 1.1676998740e-1f;
  y = y * f - 1.2420140846e-1f;
  y = y * f + 1.4249322787e-1f;
  y = y * f - 1.6668057665e-1f;
  y = y * f + 2.0000714765e-1f;
  y = y * f - 2.4999993993e-1f;
  y = y * f + 3.3333331174e-1f;
  y = y * f * z;
  const auto e = static_cast<float>(exponent);
  y = y - 2.12194440e-4f * e;
  y = y - 0.5f * z;
  return (f + y) + 0.693359375f * e;
}

// Inverse error function in single precision (Giles, "Approximating the erfinv function", 2010).
MSREC_INLINE float ErfInv(float x) {
  const float w0 = -Log((1.0f - x) * (1.0f + x));
  const bool central = w0 < 5.0f;
  const float w = central ? w0 - 2.5f : __builtin_sqrtf(w0) - 3.0f;
  float p = central ? 2.81022636e-08f : -0.000200214257f;
  p = (central ? 3.43273939e-07f : 0.000100950558f) + p * w;
  p = (central ? -3.5233877e-06f : 0.00134934322f) + p * w;
  p = (central ? -4.39150654e-06f : -0.00367342844f) + p * w;
  p = (central ? 0.00021858087f : 0.00573950773f) + p * w;
  p = (central ? -0.00125372503f : -0.0076224613f) + p * w;
  p = (central ? -0.00417768164f : 0.00943887047f) + p * w;
  p = (central ? 0.246640727f : 1.00167406f) + p * w;
  p = (central ? 1.50140941f : 2.83297682f) + p * w;
  return p * x;
}

// The standard normal's quantile of (1 + x) / 2. Finite for x = 1 too, to which the largest number
// rounds.
MSREC_INLINE float NormalQuantile(float x) {
  constexpr float kMost = 1.0f - 0x1p-24f;
  const float below = x < kMost ? x : kMost;
  return 1.41421356f * ErfInv(below > -kMost ? below : -kMost);
}

MSREC_INLINE float Unit(uint32_t number) {  // [0, 1), 24 bits
  return static_cast<float>(static_cast<int32_t>(number >> 8)) * 0x1p-24f;
}

template <int kLanes>
void InitializeLanes(const Initializer& init, int64_t key, int dim, float* out) {
  constexpr int kPerPass = 4 * kLanes;
  constexpr float kSqrt2 = 1.41421356f;
  float low = -1.0f;
  float span = 2.0f;
  if (init.kind == InitKind::kTruncatedNormal) {
    low = __builtin_erff(init.lower / kSqrt2);
    span = __builtin_erff(init.upper / kSqrt2) - low;
  }
  for (int first = 0; first < dim; first += kPerPass) {
    uint32_t numbers[kPerPass];
    float values[kPerPass];
    Philox<kLanes>(init.seed, key, static_cast<uint32_t>(first / 4), numbers);
    if (init.kind == InitKind::kUniform) {
      for (int j = 0; j < kPerPass; ++j) {
        const float value = init.a + (init.b - init.a) * Unit(numbers[j]);
        values[j] = value < init.b ? value : init.a;  // rounding may reach b, which is excluded
      }
    } else {
      // Half a step in from both ends keeps the argument inside (-1, 1).
      for (int j = 0; j < kPerPass; ++j) {
        const float x = low + span * (Unit(numbers[j]) + 0x1p-25f);
        values[j] = init.a + init.b * NormalQuantile(x);
      }
    }
    const int n = dim - first < kPerPass ? dim - first : kPerPass;
    __builtin_memcpy(out + first, values, sizeof(float) * n);
  }
}

void Initialize(const Initializer& init, int64_t key, int dim, float* out) {
  if (init.kind == InitKind::kConstant) {
    for (int j = 0; j < dim; ++j) out[j] = init.a;
  } else if (dim <= 16) {
    InitializeLanes<4>(init, key, dim, out);
  } else {
    InitializeLanes<8>(init, key, dim, out);
  }
}
