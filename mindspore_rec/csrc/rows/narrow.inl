// SPDX-License-Identifier: Apache-2.0
//
// Row kernels for rows whose value or state has two bytes a number. Part of kernels.inl, from which
// they take the rules: a piece of a row is widened to float32, updated by the rule's own code, and
// rounded back. One source for every pair of types.

// ---------------------------------------------------------------- kinds of numbers
//
// Each has kBytes of a number in memory, whether stochastic rounding draws for it, and for a piece
// of kPiece numbers: Widen, Nearest, Stochastic.

constexpr int kPiece = 16;

// A piece is computed as vectors of kLanes numbers, as many as a register has: compilers turn loops
// over the same numbers into scalar code here, as GCC 12 does comparisons of wider vectors.
#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
constexpr int kVectors = kPiece / kLanes;

typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef int32_t Signed __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));
typedef float Floats __attribute__((vector_size(4 * kLanes)));

MSREC_INLINE Words LoadWords(const void* from) {
  Words words;
  __builtin_memcpy(&words, from, sizeof(words));
  return words;
}

MSREC_INLINE Floats LoadFloats(const float* from) {
  return reinterpret_cast<Floats>(LoadWords(from));
}

// By intrinsics: GCC 12 makes two conversions to half as many words of one.
MSREC_INLINE Words LoadHalves(const char* from) {
#if defined(__AVX512F__)
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(0xffff, halves));
#elif defined(__AVX2__)
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return reinterpret_cast<Words>(_mm256_cvtepu16_epi32(halves));
#elif defined(__SSE4_1__)
  const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return reinterpret_cast<Words>(_mm_cvtepu16_epi32(halves));
#else
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof(halves));
  return __builtin_convertvector(halves, Words);
#endif
}

// Returns a where the mask is set, else b. (Given a choice GCC 12 shifts both before it chooses.)
MSREC_INLINE Words Choose(const Signed& mask, const Words& a, const Words& b) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return reinterpret_cast<Words>(_mm256_blendv_epi8(
      reinterpret_cast<__m256i>(b), reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(mask)));
#else
  return mask ? a : b;
#endif
}

// Writes a piece of numbers below 2^16.
MSREC_INLINE void StoreHalves(const Words* numbers, char* to) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  // Packs within halves of registers, whose quarters then come out in the order 0, 2, 1, 3.
  const __m256i packed = _mm256_packus_epi32(reinterpret_cast<__m256i>(numbers[0]),
                                             reinterpret_cast<__m256i>(numbers[1]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xd8));
#else
  for (int v = 0; v < kVectors; ++v) {
    const Halves halves = __builtin_convertvector(numbers[v], Halves);
    __builtin_memcpy(to + v * sizeof(halves), &halves, sizeof(halves));
  }
#endif
}

struct Float32 {
  static constexpr NumberType kType = NumberType::kFloat32;
  static constexpr int kBytes = 4;
  static constexpr bool kRounds = false;
  // By whole vectors: a read of what two narrower ones have just written waits for memory.
  MSREC_INLINE void Widen(const char* from, float* to) {
    for (int v = 0; v < kVectors; ++v) {
      const Words bits = LoadWords(from + v * sizeof(Words));
      __builtin_memcpy(to + v * kLanes, &bits, sizeof(bits));
    }
  }
  MSREC_INLINE void Nearest(const float* from, char* to) {
    for (int v = 0; v < kVectors; ++v) {
      const Words bits = LoadWords(from + v * kLanes);
      __builtin_memcpy(to + v * sizeof(bits), &bits, sizeof(bits));
    }
  }
  MSREC_INLINE void Stochastic(const float* from, const Words*, char* to) { Nearest(from, to); }
};

// As in bfloat16.h.
struct Bfloat16 {
  static constexpr NumberType kType = NumberType::kBfloat16;
  static constexpr int kBytes = 2;
  static constexpr bool kRounds = true;
  MSREC_INLINE float One(uint16_t half) { return FromBfloat16(half); }
  MSREC_INLINE void Widen(const char* from, float* to) {
    for (int v = 0; v < kVectors; ++v) {
      const Words bits = LoadHalves(from + v * sizeof(Halves)) << 16;
      __builtin_memcpy(to + v * kLanes, &bits, sizeof(bits));
    }
  }
  MSREC_INLINE void Nearest(const float* from, char* to) {
    Words rounded[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const Words bits = LoadWords(from + v * kLanes);
      rounded[v] = Rounded(bits, (bits >> 16 & 1) + 0x7fffu);
    }
    StoreHalves(rounded, to);
  }
  MSREC_INLINE void Stochastic(const float* from, const Words* random, char* to) {
    Words rounded[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      rounded[v] = Rounded(LoadWords(from + v * kLanes), random[v] >> 16);
    }
    StoreHalves(rounded, to);
  }

 private:
  MSREC_INLINE Words Rounded(const Words& bits, const Words& added) {
    const Floats numbers = reinterpret_cast<Floats>(bits);
    const Signed nan = numbers != numbers;
    return Choose(nan, bits | 0x400000u, bits + added) >> 16;
  }
};

// As in float16.h.
struct Float16 {
  static constexpr NumberType kType = NumberType::kFloat16;
  static constexpr int kBytes = 2;
  static constexpr bool kRounds = true;
  MSREC_INLINE float One(uint16_t half) { return FromFloat16(half); }
#if defined(__F16C__)
  MSREC_INLINE void Widen(const char* from, float* to) {
    for (int j = 0; j < kPiece; j += 8) {
      __m128i halves;
      __builtin_memcpy(&halves, from + 2 * j, sizeof(halves));
      _mm256_storeu_ps(to + j, _mm256_cvtph_ps(halves));
    }
  }
  MSREC_INLINE void Nearest(const float* from, char* to) {
    for (int j = 0; j < kPiece; j += 8) {
      const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + j), _MM_FROUND_TO_NEAREST_INT);
      __builtin_memcpy(to + 2 * j, &halves, sizeof(halves));
    }
  }
#else
  MSREC_INLINE void Widen(const char* from, float* to) {
    uint16_t halves[kPiece];
    __builtin_memcpy(halves, from, sizeof(halves));
    for (int j = 0; j < kPiece; ++j) to[j] = FromFloat16(halves[j]);
  }
  MSREC_INLINE void Nearest(const float* from, char* to) {
    uint16_t halves[kPiece];
    for (int j = 0; j < kPiece; ++j) halves[j] = ToFloat16(from[j]);
    __builtin_memcpy(to, halves, sizeof(halves));
  }
#endif
  MSREC_INLINE void Stochastic(const float* from, const Words* random, char* to) {
    Words rounded[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      rounded[v] = Rounded(LoadWords(from + v * kLanes), random[v]);
    }
    StoreHalves(rounded, to);
  }

 private:
  MSREC_INLINE Words Rounded(const Words& bits, const Words& added) {
    const Words absolute = bits & 0x7fffffffu;
    const Words exponent = absolute >> 23;
    const Words mantissa = (absolute & 0x7fffffu) | (exponent > 0 ? Words{} + 0x800000u : Words{});
    const Signed is_normal = absolute >= kLeastNormalFloat16;
    const Words small = 126u - exponent;
    const Words cut = is_normal ? Words{} + 13u : (small < 63 ? small : Words{} + 63u);
    const Words shifted = mantissa >> (cut < 31 ? cut : Words{} + 31u);
    const Words kept = is_normal ? (absolute >> 13) - (112u << 10) : shifted;
    const Words fraction =
        cut < 32 ? mantissa << ((32u - cut) & 31u) : mantissa >> ((cut - 32u) & 31u);
    const Words carried = fraction + added < fraction ? kept + 1u : kept;
    const Words finite = absolute >= 0x47800000u ? Words{} + kFloat16Infinity : carried;
    const Words nan = 0x7e00u | (absolute >> 13 & 0x3ffu);
    return (bits >> 16 & 0x8000u) | (absolute > 0x7f800000u ? nan : finite);
  }
};

// The same of n <= kPiece numbers; those beyond read as 0.
template <typename T>
MSREC_INLINE void Load(const char* from, int n, float* to) {
  if (n == kPiece) {
    T::Widen(from, to);
    return;
  }
  char padded[kPiece * T::kBytes] = {};
  __builtin_memcpy(padded, from, static_cast<size_t>(n) * T::kBytes);
  T::Widen(padded, to);
}

// ---------------------------------------------------------------- stochastic rounding
// The generator is described in rounding.h.

MSREC_INLINE uint64_t Mixed(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

MSREC_INLINE uint64_t StreamOfRow(const StepConstants& c, int64_t key) {
  return Mixed(c.rounding.stream ^ Mixed(static_cast<uint64_t>(key) ^ kRoundingKey));
}

// Before they are mixed, words of neighbouring places differ by kPlace.
constexpr uint32_t kPlace = 0x9e3779b9u;
struct Places {
  uint32_t of[kPiece] = {};
  constexpr Places() {
    for (int j = 0; j < kPiece; ++j) of[j] = static_cast<uint32_t>(j) * kPlace;
  }
};
constexpr Places kPlaces;  // multiples of it for the places of a piece

// Numbers first .. first + kPiece of the row's stream, of plane 0.
MSREC_INLINE void Draw(uint64_t stream, int first, Words* numbers) {
  const uint32_t low = static_cast<uint32_t>(stream) + static_cast<uint32_t>(first) * kPlace;
  const uint32_t high = static_cast<uint32_t>(stream >> 32);
  for (int v = 0; v < kVectors; ++v) {
    Words x = LoadWords(kPlaces.of + v * kLanes) + low;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x += high;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    numbers[v] = x;
  }
}

// Turns a plane's numbers into the next plane's numbers.
MSREC_INLINE void DrawNext(Words* numbers) {
  for (int v = 0; v < kVectors; ++v) {
    const Words x = numbers[v] * 0x9e3779b1u;
    numbers[v] = x ^ x >> 15;
  }
}

MSREC_INLINE void LowerHalves(const Words* numbers, Words* to) {
  for (int v = 0; v < kVectors; ++v) to[v] = numbers[v] << 16;
}

// Writes n numbers back; to the nearest ones where `random` is null.
template <typename T>
MSREC_INLINE void Store(const float* from, const Words* random, int n, char* to) {
  char padded[kPiece * T::kBytes];
  char* const piece = n == kPiece ? to : padded;
  if (T::kRounds && random != nullptr) {
    T::Stochastic(from, random, piece);
  } else {
    T::Nearest(from, piece);
  }
  if (n < kPiece) __builtin_memcpy(to, padded, static_cast<size_t>(n) * T::kBytes);
}

// ---------------------------------------------------------------- the step

// Updates one row of value type V and state type S by a rule whose elements are independent.
template <typename V, typename S, typename R, bool kStochastic>
struct NarrowUpdate {
  MSREC_INLINE void Run(const StepConstants& c, int dim, char* value, char* state, const float* raw,
                        uint64_t stream) {
    int first = 0;
    // A constant number of elements leaves no branches.
    for (; first + kPiece <= dim; first += kPiece) {
      Piece(c, dim, first, kPiece, value, state, raw, stream);
    }
    if (first < dim) Piece(c, dim, first, dim - first, value, state, raw, stream);
  }

 private:
  // Updates elements first .. first + n.
  MSREC_INLINE void Piece(const StepConstants& c, int dim, int first, int n, char* value,
                          char* state, const float* raw, uint64_t stream) {
    const int states = R::States(c.rule);
    float w[kPiece], s[3][kPiece], padded[kPiece];
    const float* g = raw + first;
    Load<V>(value + static_cast<size_t>(first) * V::kBytes, n, w);
    for (int k = 0; k < states; ++k) {
      Load<S>(state + (static_cast<size_t>(k) * dim + first) * S::kBytes, n, s[k]);
    }
    if (n < kPiece) {
      Load<Float32>(reinterpret_cast<const char*>(g), n, padded);
      g = padded;
    }
    R::template Apply<true>(c, kPiece, w, s[0], s[1], s[2], g);
    Words plane[kVectors], lower[kVectors];
    if constexpr (kStochastic) Draw(stream, first, plane);
    Store<V>(w, kStochastic ? plane : nullptr, n, value + static_cast<size_t>(first) * V::kBytes);
    for (int k = 0; k < states; ++k) {
      const Words* random = nullptr;
      if constexpr (S::kRounds && kStochastic) {
        if (k == 1) DrawNext(plane);
        if (k % 2 == 0) LowerHalves(plane, lower);
        random = k % 2 == 0 ? lower : plane;
      }
      Store<S>(s[k], random, n, state + (static_cast<size_t>(k) * dim + first) * S::kBytes);
    }
  }
};

// All elements share one accumulator.
template <typename V, typename S, bool kStochastic>
struct NarrowUpdate<V, S, RowWiseAdagrad, kStochastic> {
  MSREC_INLINE void Run(const StepConstants& c, int dim, char* value, char* state, const float* raw,
                        uint64_t stream) {
    float lane[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    float w[kPiece];
    for (int first = 0; first < dim; first += kPiece) {
      const int n = dim - first < kPiece ? dim - first : kPiece;
      Load<V>(value + static_cast<size_t>(first) * V::kBytes, n, w);
      for (int j = 0; j < n; ++j) {
        const float g = c.in.grad_scale * raw[first + j] + Decay<true>(c.in.weight_decay, w[j]);
        lane[j & 7] += g * g;
      }
    }
    float sums[kPiece];
    Load<S>(state, 1, sums);
    sums[0] += LaneSum(lane) / static_cast<float>(dim);
    const float rate = c.in.learning_rate / (__builtin_sqrtf(sums[0]) + c.rule.epsilon);
    for (int first = 0; first < dim; first += kPiece) {
      const int n = dim - first < kPiece ? dim - first : kPiece;
      Load<V>(value + static_cast<size_t>(first) * V::kBytes, n, w);
      for (int j = 0; j < n; ++j) {
        const float g = c.in.grad_scale * raw[first + j] + Decay<true>(c.in.weight_decay, w[j]);
        w[j] -= rate * g;
      }
      Words random[kVectors];
      if constexpr (kStochastic) Draw(stream, first, random);
      Store<V>(w, kStochastic ? random : nullptr, n,
               value + static_cast<size_t>(first) * V::kBytes);
      if (first > 0) continue;
      if constexpr (kStochastic) LowerHalves(random, random);
      Store<S>(sums, kStochastic ? random : nullptr, 1, state);
    }
  }
};

template <typename V, typename S, typename R, bool kStochastic>
void NarrowStepRule(const StepConstants& given, int dim, char* const* rows, const float* sums,
                    size_t n) {
  const StepConstants c = given;  // which no write to a row can change
  constexpr size_t kAhead = 6;
  const size_t state_at = kHeader + PartBytes(dim, V::kType);
  const size_t bytes = state_at + PartBytes(R::States(c.rule) * dim, S::kType);
  for (size_t i = 0; i < n; ++i) {
    if (i + kAhead < n && rows[i + kAhead] != nullptr) PrefetchRow(rows[i + kAhead], bytes);
    char* row = rows[i];
    if (row == nullptr) continue;
    int64_t key;
    __builtin_memcpy(&key, row, sizeof(key));
    NarrowUpdate<V, S, R, kStochastic>::Run(c, dim, row + kHeader, row + state_at, sums + i * dim,
                                            StreamOfRow(c, key));
  }
}

template <typename V, typename S>
void NarrowStep(const StepConstants& c, int dim, char* const* rows, const float* sums, size_t n) {
  if (c.rounding.stochastic) {
#define CALL(R) NarrowStepRule<V, S, R, true>(c, dim, rows, sums, n)
    MSREC_FOR_RULE(c.rule.kind, CALL)
#undef CALL
  } else {
#define CALL(R) NarrowStepRule<V, S, R, false>(c, dim, rows, sums, n)
    MSREC_FOR_RULE(c.rule.kind, CALL)
#undef CALL
  }
}

// Copies n numbers of type T to or from float32 that have its precision.
template <typename T>
MSREC_INLINE void Pack(const float* from, int n, char* to) {
  for (int first = 0; first < n; first += kPiece) {
    const int m = n - first < kPiece ? n - first : kPiece;
    float piece[kPiece];
    Load<Float32>(reinterpret_cast<const char*>(from + first), m, piece);
    Store<T>(piece, nullptr, m, to + static_cast<size_t>(first) * T::kBytes);
  }
}

template <typename T>
MSREC_INLINE void Unpack(const char* from, int n, float* to) {
  for (int first = 0; first < n; first += kPiece) {
    const int m = n - first < kPiece ? n - first : kPiece;
    float piece[kPiece];
    Load<T>(from + static_cast<size_t>(first) * T::kBytes, m, piece);
    __builtin_memcpy(to + first, piece, m * sizeof(float));
  }
}

// By way of a row: what differs from Step is where numbers are, not what becomes of them.
template <typename V, typename S>
void NarrowStepApart(const StepConstants& c, int dim, const int64_t* keys, float* const* values,
                     float* const* states, const float* sums, size_t n) {
  alignas(4) char row[kHeader + 4 * sizeof(float) * kMaxDim];
  char* const one = row;
  const size_t state_at = kHeader + PartBytes(dim, V::kType);
  const int width = c.rule.StateWidth(dim);
  for (size_t i = 0; i < n; ++i) {
    if (values[i] == nullptr) continue;
    __builtin_memcpy(row, keys + i, sizeof(keys[i]));
    Pack<V>(values[i], dim, row + kHeader);
    Pack<S>(states[i], width, row + state_at);
    NarrowStep<V, S>(c, dim, &one, sums + i * dim, 1);
    Unpack<V>(row + kHeader, dim, values[i]);
    Unpack<S>(row + state_at, width, states[i]);
  }
}

// ---------------------------------------------------------------- gather, pool

// Widens n numbers.
template <typename V>
MSREC_INLINE void WidenAll(const char* from, int n, float* to) {
  int first = 0;
  for (; first + kPiece <= n; first += kPiece) V::Widen(from + first * V::kBytes, to + first);
  for (; first < n; ++first) {
    uint16_t half;
    __builtin_memcpy(&half, from + first * V::kBytes, sizeof(half));
    to[first] = V::One(half);
  }
}

template <typename V, int D>
void NarrowGatherDim(char* const* rows, const uint32_t* inverse, const uint32_t* pos, size_t n,
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
    float* to = out + static_cast<size_t>(pos[i]) * dim;
    if (row != nullptr) {
      WidenAll<V>(row + kHeader, dim, to);
    } else {
      __builtin_memcpy(to, default_row, sizeof(float) * dim);
    }
  }
}

template <typename V>
void NarrowGather(char* const* rows, const uint32_t* inverse, const uint32_t* pos, size_t n,
                  const float* default_row, int dim, float* out) {
#define CALL(D) NarrowGatherDim<V, D>(rows, inverse, pos, n, default_row, dim, out)
  MSREC_FOR_DIM(dim, CALL)
#undef CALL
}

// Rows go out in bfloat16: copies where they are that, without a way through float32.
template <typename V, int D>
void GatherBfloat16Dim(char* const* rows, const uint32_t* inverse, const uint32_t* pos, size_t n,
                       const float* default_row, int dim_arg, uint16_t* out) {
  const int dim = D != 0 ? D : dim_arg;
  constexpr size_t kAhead = 12;
  for (size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) {
      const uint16_t* next = out + static_cast<size_t>(pos[i + kAhead]) * dim;
      __builtin_prefetch(next, 1);
      if (dim > 32) __builtin_prefetch(next + 32, 1);
    }
    const char* row = rows[inverse[i]];
    char* to = reinterpret_cast<char*>(out + static_cast<size_t>(pos[i]) * dim);
    if (row == nullptr) {
      Pack<Bfloat16>(default_row, dim, to);
    } else if constexpr (V::kType == NumberType::kBfloat16) {
      __builtin_memcpy(to, row + kHeader, Bfloat16::kBytes * static_cast<size_t>(dim));
    } else {
      for (int first = 0; first < dim; first += kPiece) {
        const int m = dim - first < kPiece ? dim - first : kPiece;
        float piece[kPiece];
        Load<V>(row + kHeader + static_cast<size_t>(first) * V::kBytes, m, piece);
        Store<Bfloat16>(piece, nullptr, m, to + static_cast<size_t>(first) * Bfloat16::kBytes);
      }
    }
  }
}

template <typename V>
void GatherBfloat16(char* const* rows, const uint32_t* inverse, const uint32_t* pos, size_t n,
                    const float* default_row, int dim, uint16_t* out) {
#define CALL(D) GatherBfloat16Dim<V, D>(rows, inverse, pos, n, default_row, dim, out)
  MSREC_FOR_DIM(dim, CALL)
#undef CALL
}

template <int D>
void AccumulateBfloat16Dim(const uint32_t* slot, const uint32_t* pos, size_t n,
                           const uint16_t* grad, const uint32_t* source, const float* scale,
                           int dim_arg, float* sums) {
  const int dim = D != 0 ? D : dim_arg;
  constexpr size_t kAhead = 12;
  for (size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) {
      const uint32_t p = pos[i + kAhead];
      const uint16_t* next = grad + static_cast<size_t>(source != nullptr ? source[p] : p) * dim;
      __builtin_prefetch(next);
      if (dim > 32) __builtin_prefetch(next + 32);
    }
    const uint32_t p = pos[i];
    const uint16_t* __restrict g =
        grad + static_cast<size_t>(source != nullptr ? source[p] : p) * dim;
    float* __restrict s = sums + static_cast<size_t>(slot[i]) * dim;
    // Loops over the whole row, which become vectors; over pieces of it they become scalar code.
    if (scale == nullptr) {
      for (int j = 0; j < dim; ++j) s[j] += FromBfloat16(g[j]);
    } else {
      const float w = scale[p];
      for (int j = 0; j < dim; ++j) s[j] += w * FromBfloat16(g[j]);
    }
  }
}

void AccumulateBfloat16(const uint32_t* slot, const uint32_t* pos, size_t n, const uint16_t* grad,
                        const uint32_t* source, const float* scale, int dim, float* sums) {
#define CALL(D) AccumulateBfloat16Dim<D>(slot, pos, n, grad, source, scale, dim, sums)
  MSREC_FOR_DIM(dim, CALL)
#undef CALL
}

template <typename V>
void NarrowPool(char* const* rows, const uint32_t* index, const float* weight, size_t n,
                const float* default_row, float scale, int dim, float* out) {
  for (int j = 0; j < dim; ++j) out[j] = 0.0f;
  for (size_t i = 0; i < n; ++i) {
    const char* row = rows[index[i]];
    const float w = weight != nullptr ? weight[i] : 1.0f;
    for (int first = 0; first < dim; first += kPiece) {
      const int m = dim - first < kPiece ? dim - first : kPiece;
      float value[kPiece];
      if (row != nullptr) {
        Load<V>(row + kHeader + static_cast<size_t>(first) * V::kBytes, m, value);
      } else {
        Load<Float32>(reinterpret_cast<const char*>(default_row + first), m, value);
      }
      if (m == kPiece) {
        for (int v = 0; v < kPiece; v += kLanes) {
          float* const to = out + first + v;
          const Floats sum = LoadFloats(to) + w * LoadFloats(value + v);
          __builtin_memcpy(to, &sum, sizeof(sum));
        }
      } else {
        for (int j = 0; j < m; ++j) out[first + j] += w * value[j];
      }
    }
  }
  for (int j = 0; j < dim; ++j) out[j] *= scale;
}

template <typename V, typename S>
constexpr RowKernels NarrowRows() {
  if constexpr (V::kType == NumberType::kFloat32) {
    return {Gather, Pool, NarrowStep<V, S>, NarrowStepApart<V, S>, GatherBfloat16<V>};
  } else {
    return {NarrowGather<V>, NarrowPool<V>, NarrowStep<V, S>, NarrowStepApart<V, S>,
            GatherBfloat16<V>};
  }
}
