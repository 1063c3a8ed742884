// SPDX-License-Identifier: Apache-2.0
//
// The kernel that reads rows of int8 and int4 (rows/quantised_row.h): a part of
// rows/kernels.inl, compiled once per instruction set. All give the same bits: each number is
// scale * code, which is exact, plus offset; numbers are added row by row; then comes the factor.

// ---------------------------------------------------------------- vectors of float

#if defined(__AVX512F__)
using Vector = __m512;
constexpr int kVectorLanes = 16;
MSREC_INLINE Vector SetVector(float x) { return _mm512_set1_ps(x); }
MSREC_INLINE Vector LoadVector(const float* from) { return _mm512_loadu_ps(from); }
MSREC_INLINE void StoreVector(float* to, Vector x) { _mm512_storeu_ps(to, x); }
MSREC_INLINE Vector Add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
MSREC_INLINE Vector Multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
// Masked with all lanes: GCC 12 warns of an undefined vector in the plain intrinsics.
MSREC_INLINE Vector FromBytes(__m128i bytes) {
  constexpr __mmask16 kAll = 0xffff;
  return _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_cvtepu8_epi32(kAll, bytes));
}
MSREC_INLINE __m128i Load16(const unsigned char* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
MSREC_INLINE __m128i Load8(const unsigned char* from) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
}
#define MSREC_LOAD_LANES Load16
#define MSREC_LOAD_HALF_LANES Load8
#elif defined(__AVX2__)
using Vector = __m256;
constexpr int kVectorLanes = 8;
MSREC_INLINE Vector SetVector(float x) { return _mm256_set1_ps(x); }
MSREC_INLINE Vector LoadVector(const float* from) { return _mm256_loadu_ps(from); }
MSREC_INLINE void StoreVector(float* to, Vector x) { _mm256_storeu_ps(to, x); }
MSREC_INLINE Vector Add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
MSREC_INLINE Vector Multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
MSREC_INLINE Vector FromBytes(__m128i bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}
MSREC_INLINE __m128i Load8(const unsigned char* from) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
}
MSREC_INLINE __m128i Load4(const unsigned char* from) {
  int bytes;
  __builtin_memcpy(&bytes, from, sizeof(bytes));
  return _mm_cvtsi32_si128(bytes);
}
#define MSREC_LOAD_LANES Load8
#define MSREC_LOAD_HALF_LANES Load4
#elif defined(__SSE4_1__)
using Vector = __m128;
constexpr int kVectorLanes = 4;
MSREC_INLINE Vector SetVector(float x) { return _mm_set1_ps(x); }
MSREC_INLINE Vector LoadVector(const float* from) { return _mm_loadu_ps(from); }
MSREC_INLINE void StoreVector(float* to, Vector x) { _mm_storeu_ps(to, x); }
MSREC_INLINE Vector Add(Vector a, Vector b) { return _mm_add_ps(a, b); }
MSREC_INLINE Vector Multiply(Vector a, Vector b) { return _mm_mul_ps(a, b); }
MSREC_INLINE Vector FromBytes(__m128i bytes) { return _mm_cvtepi32_ps(_mm_cvtepu8_epi32(bytes)); }
MSREC_INLINE __m128i Load4(const unsigned char* from) {
  int bytes;
  __builtin_memcpy(&bytes, from, sizeof(bytes));
  return _mm_cvtsi32_si128(bytes);
}
MSREC_INLINE __m128i Load2(const unsigned char* from) {
  uint16_t bytes;
  __builtin_memcpy(&bytes, from, sizeof(bytes));
  return _mm_cvtsi32_si128(bytes);
}
#define MSREC_LOAD_LANES Load4
#define MSREC_LOAD_HALF_LANES Load2
#else
struct Vector {
  float lane[4];
};
constexpr int kVectorLanes = 4;
MSREC_INLINE Vector SetVector(float x) { return {{x, x, x, x}}; }
MSREC_INLINE Vector LoadVector(const float* from) {
  Vector x;
  __builtin_memcpy(&x, from, sizeof(x));
  return x;
}
MSREC_INLINE void StoreVector(float* to, Vector x) { __builtin_memcpy(to, &x, sizeof(x)); }
MSREC_INLINE Vector Add(Vector a, Vector b) {
  for (int j = 0; j < kVectorLanes; ++j) a.lane[j] += b.lane[j];
  return a;
}
MSREC_INLINE Vector Multiply(Vector a, Vector b) {
  for (int j = 0; j < kVectorLanes; ++j) a.lane[j] *= b.lane[j];
  return a;
}
#endif

// ---------------------------------------------------------------- codes

template <int kBits>
MSREC_INLINE float CodeAt(const unsigned char* codes, int j) {
  return static_cast<float>(kBits == 8 ? codes[j] : codes[j / 2] >> (j % 2 * 4) & 15);
}

// The codes from `codes` on, as many as a vector has lanes.
template <int kBits>
MSREC_INLINE Vector CodesFrom(const unsigned char* codes) {
#if defined(__SSE4_1__)
  if (kBits == 8) return FromBytes(MSREC_LOAD_LANES(codes));
  // A byte 0xAB becomes the two 0x0B, 0x0A.
  const __m128i wide = _mm_cvtepu8_epi16(MSREC_LOAD_HALF_LANES(codes));
  const __m128i both = _mm_or_si128(wide, _mm_slli_epi16(wide, 4));
  return FromBytes(_mm_and_si128(both, _mm_set1_epi8(15)));
#else
  Vector x;
  for (int j = 0; j < kVectorLanes; ++j) x.lane[j] = CodeAt<kBits>(codes, j);
  return x;
#endif
}

MSREC_INLINE float HalfAt(const char* from) {
  uint16_t half;
  __builtin_memcpy(&half, from, sizeof(half));
#if defined(__F16C__)
  return _cvtsh_ss(half);
#else
  return FromFloat16(half);
#endif
}

// ---------------------------------------------------------------- bags

struct QuantisedBag {
  const char* const* rows;  // where their scale lies; null: unknown
  const float* weight;      // null: 1
  size_t n;
  const float* unknown;
  float factor;
  float* out;
};

// Numbers [first, first + kVectors * kVectorLanes) of the bag's row.
template <int kBits, bool kWeighted, int kVectors>
MSREC_INLINE void PoolVectors(const QuantisedBag& bag, int first) {
  Vector sum[kVectors];
  for (int v = 0; v < kVectors; ++v) sum[v] = SetVector(0.0f);
  for (size_t i = 0; i < bag.n; ++i) {
    const char* row = bag.rows[i];
    const Vector weight = SetVector(kWeighted ? bag.weight[i] : 1.0f);
    if (row == nullptr) {
      for (int v = 0; v < kVectors; ++v) {
        Vector x = LoadVector(bag.unknown + first + v * kVectorLanes);
        if (kWeighted) x = Multiply(weight, x);
        sum[v] = Add(sum[v], x);
      }
      continue;
    }
    const Vector scale = SetVector(HalfAt(row));
    const Vector offset = SetVector(HalfAt(row + 2));
    const auto* codes = reinterpret_cast<const unsigned char*>(row) + 4 + first * kBits / 8;
    for (int v = 0; v < kVectors; ++v) {
      const Vector code = CodesFrom<kBits>(codes + v * kVectorLanes * kBits / 8);
      Vector x = Add(Multiply(scale, code), offset);
      if (kWeighted) x = Multiply(weight, x);
      sum[v] = Add(sum[v], x);
    }
  }
  const Vector factor = SetVector(bag.factor);
  for (int v = 0; v < kVectors; ++v) {
    StoreVector(bag.out + first + v * kVectorLanes, Multiply(sum[v], factor));
  }
}

// Numbers [first, dim), fewer than a vector has lanes.
template <int kBits, bool kWeighted>
MSREC_INLINE void PoolRest(const QuantisedBag& bag, int first, int dim) {
  float sum[kVectorLanes] = {};
  for (size_t i = 0; i < bag.n; ++i) {
    const char* row = bag.rows[i];
    const float weight = kWeighted ? bag.weight[i] : 1.0f;
    float numbers[kVectorLanes];
    if (row == nullptr) {
      for (int j = first; j < dim; ++j) numbers[j - first] = bag.unknown[j];
    } else {
      const float scale = HalfAt(row);
      const float offset = HalfAt(row + 2);
      const auto* codes = reinterpret_cast<const unsigned char*>(row) + 4;
      for (int j = first; j < dim; ++j) {
        numbers[j - first] = scale * CodeAt<kBits>(codes, j) + offset;
      }
    }
    for (int j = 0; j < dim - first; ++j) {
      sum[j] += kWeighted ? weight * numbers[j] : numbers[j];
    }
  }
  for (int j = first; j < dim; ++j) bag.out[j] = sum[j - first] * bag.factor;
}

template <int kBits, bool kWeighted>
MSREC_INLINE void PoolAll(const QuantisedBag& bag, int dim) {
  int first = 0;
  for (; dim - first >= 8 * kVectorLanes; first += 8 * kVectorLanes) {
    PoolVectors<kBits, kWeighted, 8>(bag, first);
  }
  if (dim - first >= 4 * kVectorLanes) {
    PoolVectors<kBits, kWeighted, 4>(bag, first);
    first += 4 * kVectorLanes;
  }
  if (dim - first >= 2 * kVectorLanes) {
    PoolVectors<kBits, kWeighted, 2>(bag, first);
    first += 2 * kVectorLanes;
  }
  if (dim - first >= kVectorLanes) {
    PoolVectors<kBits, kWeighted, 1>(bag, first);
    first += kVectorLanes;
  }
  if (first < dim) PoolRest<kBits, kWeighted>(bag, first, dim);
}

template <int kBits>
void PoolQuantised(const char* const* rows, const float* weight, size_t n, const float* unknown,
                   float factor, int dim, float* out) {
  const QuantisedBag bag{rows, weight, n, unknown, factor, out};
  if (weight != nullptr) {
    PoolAll<kBits, true>(bag, dim);
  } else {
    PoolAll<kBits, false>(bag, dim);
  }
}
