// SPDX-License-Identifier: Apache-2.0
//
// First values of rows: the random numbers, the distributions, and that they depend on nothing but
// (seed, key). The kernel's own code is included once more, to reach the functions inside.
#include "init/initializer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "rows/kernels.h"
#include "testing.h"

namespace msrec {
namespace {

#define MSREC_INLINE static inline __attribute__((always_inline))
#include "init/first_values.inl"

// Philox4x32-10 as published, one block at a time.
std::array<uint32_t, 4> Reference(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

using Block = std::array<uint32_t, 4>;

TEST(Philox, ReferenceGivesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(Reference({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Reference({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Reference({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

template <int kLanes>
void CheckPhilox() {
  Rng rng(1);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t seed = i == 0 ? 0 : rng.Bits();
    const int64_t key = i == 0 ? 0 : i % 2 != 0 ? rng.Key(20) : static_cast<int64_t>(rng.Bits());
    const auto first = static_cast<uint32_t>(i == 0 ? 0 : rng.Below(5000));
    uint32_t numbers[4 * kLanes];
    Philox<kLanes>(seed, key, first, numbers);
    for (int b = 0; b < kLanes; ++b) {
      const Block block =
          Reference({first + b, 0, static_cast<uint32_t>(key),
                     static_cast<uint32_t>(static_cast<uint64_t>(key) >> 32)},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
      for (int w = 0; w < 4; ++w) ASSERT_EQ(numbers[4 * b + w], block[w]);
    }
  }
}

TEST(Philox, KernelGivesTheReferencesNumbers) {
  CheckPhilox<4>();
  CheckPhilox<8>();
}

double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// Every one of the 2^24 arguments that can occur, both ends included.
TEST(NormalQuantile, IsAccurateForEveryNumber) {
  double worst = 0.0;
  float before = -INFINITY;
  const uint32_t stride = kFewer;
  for (uint32_t k = 0; k < (1u << 24); k += k < 1000 || k > (1u << 24) - 1000 ? 1 : stride) {
    const float p = Unit(k << 8) + 0x1p-25f;
    const float x = -1.0f + 2.0f * p;
    const float z = NormalQuantile(x);
    ASSERT_GE(z, before - 4e-7f * std::fabs(z)) << "rises with the number " << k;
    before = z;
    ASSERT_LT(std::fabs(z), 5.6f) << "number " << k;
    // Back to the probability: there the argument's own rounding is 2^-25 or less.
    const double exact = 0.5 + 0.5 * static_cast<double>(x);
    const double density = std::exp(-0.5 * z * z) / std::sqrt(2.0 * M_PI);
    const double off = std::fabs(NormalCdf(z) - exact) / density;  // in standard deviations
    if (std::fabs(x) < 1.0f) worst = std::max(worst, off / std::max(1.0, std::fabs(double{z})));
  }
  EXPECT_LT(worst, 2e-6);
}

TEST(Log, IsWithinTwoUlp) {
  Rng rng(2);
  for (int i = 0; i < 300000; ++i) {
    const auto bits = static_cast<uint32_t>(0x00800000 + rng.Below(0x3f800000 - 0x00800000));
    float x;
    std::memcpy(&x, &bits, sizeof(x));
    const double exact = std::log(static_cast<double>(x));
    const double ulp =
        std::max(std::ldexp(1.0, std::ilogb(exact == 0 ? 1e-30 : exact) - 23), 1e-10);
    ASSERT_LE(std::fabs(Log(x) - exact), 2 * ulp) << x;
  }
}

std::vector<float> Draw(const Initializer& init, size_t keys, int dim) {
  std::vector<float> values(keys * dim);
  for (size_t k = 0; k < keys; ++k) {
    Initialize(init, static_cast<int64_t>(k), dim, values.data() + k * dim);
  }
  return values;
}

Initializer Make(InitKind kind, float a, float b, uint64_t seed = 7) {
  Initializer init;
  init.kind = kind;
  init.seed = seed;
  init.a = a;
  init.b = b;
  return init;
}

// Kolmogorov-Smirnov: the largest distance between the sample's and the true distribution, times
// sqrt(n). Above 1.95 once in a thousand; the seeds are fixed, so a pass stays one.
template <typename Cdf>
double KolmogorovSmirnov(std::vector<float> values, Cdf cdf) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  double most = 0.0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double p = cdf(values[i]);
    most = std::max({most, p - i / n, (i + 1) / n - p});
  }
  return most * std::sqrt(n);
}

struct Moments {
  double mean = 0.0, std = 0.0;
};
Moments MomentsOf(const std::vector<float>& values) {
  double sum = 0.0, squares = 0.0;
  for (const float v : values) sum += v;
  const double mean = sum / values.size();
  for (const float v : values) squares += (v - mean) * (v - mean);
  return {mean, std::sqrt(squares / values.size())};
}

constexpr size_t kKeys = 40000 / kFewer;

TEST(Initializer, UniformIsUniform) {
  for (const auto& [a, b] : {std::pair{-0.05f, 0.05f}, {0.0f, 1.0f}, {-3.0f, 10.0f}}) {
    const auto values = Draw(Make(InitKind::kUniform, a, b), kKeys, 5);
    for (const float v : values) ASSERT_TRUE(v >= a && v < b) << v;
    EXPECT_LT(KolmogorovSmirnov(values, [a = a, b = b](double x) { return (x - a) / (b - a); }),
              1.95);
  }
}

TEST(Initializer, UniformNeverReachesItsUpperEnd) {
  for (const auto& [a, b] : {std::pair{-0.05f, 0.05f}, {1.0f, 1.0f + 0x1p-20f}, {-1e-3f, 1.0f}}) {
    const Initializer init = Make(InitKind::kUniform, a, b);
    for (int64_t key = 0; key < 100000; ++key) {
      float out[32];
      Initialize(init, key, 32, out);
      for (const float v : out) ASSERT_TRUE(v >= a && v < b) << v;
    }
  }
}

TEST(Initializer, NormalIsNormal) {
  for (const auto& [mean, std] : {std::pair{0.0f, 1.0f}, {2.0f, 0.01f}, {-1.0f, 30.0f}}) {
    const auto values = Draw(Make(InitKind::kNormal, mean, std), kKeys, 7);
    const Moments m = MomentsOf(values);
    EXPECT_NEAR(m.mean, mean, 4 * std / std::sqrt(values.size()));
    EXPECT_NEAR(m.std, std, 4 * std / std::sqrt(2.0 * values.size()));
    EXPECT_LT(
        KolmogorovSmirnov(values, [m = mean, s = std](double x) { return NormalCdf((x - m) / s); }),
        1.95);
  }
}

TEST(Initializer, TruncatedNormalStaysInItsRange) {
  for (const auto& [lower, upper] :
       {std::pair{-2.0f, 2.0f}, {-0.5f, 3.0f}, {-8.0f, 8.0f}, {1.0f, 2.0f}}) {
    Initializer init = Make(InitKind::kTruncatedNormal, 0.5f, 0.1f);
    init.lower = lower;
    init.upper = upper;
    const auto values = Draw(init, kKeys, 6);
    for (const float v : values) {
      ASSERT_GE(v, 0.5f + 0.1f * lower - 1e-7f);
      ASSERT_LE(v, 0.5f + 0.1f * upper + 1e-7f);
    }
    const double low = NormalCdf(lower), high = NormalCdf(upper);
    EXPECT_LT(
        KolmogorovSmirnov(
            values, [&](double x) { return (NormalCdf((x - 0.5) / 0.1) - low) / (high - low); }),
        1.95)
        << lower << " " << upper;
  }
}

TEST(Initializer, ConstantIsConstant) {
  for (const float v : Draw(Make(InitKind::kConstant, 0.25f, 9.0f), 100, 33)) ASSERT_EQ(v, 0.25f);
}

TEST(Initializer, NeighboursAreUnrelated) {
  // Along the row, from key to key, and from seed to seed.
  const int dim = 40;
  const auto one = Draw(Make(InitKind::kNormal, 0.0f, 1.0f, 1), 5000, dim);
  const auto two = Draw(Make(InitKind::kNormal, 0.0f, 1.0f, 2), 5000, dim);
  const auto correlation = [](const float* a, const float* b, size_t n) {
    double sum = 0.0;
    for (size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum / n;
  };
  const size_t n = one.size() - dim * 8;
  const double bound = 4.0 / std::sqrt(static_cast<double>(n));
  for (const size_t lag : {1, 2, 3, 4, 8, 32, dim, 2 * dim, 8 * dim}) {
    EXPECT_LT(std::fabs(correlation(one.data(), one.data() + lag, n)), bound) << lag;
  }
  EXPECT_LT(std::fabs(correlation(one.data(), two.data(), one.size())), bound);
}

TEST(Initializer, ARowIsAPrefixOfAWiderRow) {
  for (const InitKind kind : {InitKind::kUniform, InitKind::kNormal, InitKind::kTruncatedNormal}) {
    std::vector<float> wide(300);
    for (const int64_t key : EdgeKeys()) {
      Initialize(Make(kind, 0.0f, 1.0f), key, 300, wide.data());
      for (const int dim : {1, 4, 31, 32, 33, 64, 100}) {
        std::vector<float> row(dim);
        Initialize(Make(kind, 0.0f, 1.0f), key, dim, row.data());
        ASSERT_TRUE(SameBits(row.data(), wide.data(), dim));
      }
    }
  }
}

TEST(Initializer, EveryInstructionSetGivesTheSameBits) {
  for (const char* name : {"avx2", "avx512"}) {
    const Kernels* kernels = FindKernels(name);
    if (kernels == nullptr) continue;
    for (const InitKind kind :
         {InitKind::kConstant, InitKind::kUniform, InitKind::kNormal, InitKind::kTruncatedNormal}) {
      Rng rng(3);
      for (int i = 0; i < 3000; ++i) {
        const int dim = 1 + static_cast<int>(rng.Below(100));
        const Initializer init = Make(kind, rng.Float(-1, 0), rng.Float(0, 1), rng.Bits());
        const auto key = static_cast<int64_t>(rng.Bits());
        std::vector<float> a(dim), b(dim);
        FindKernels("base")->initialize(init, key, dim, a.data());
        kernels->initialize(init, key, dim, b.data());
        ASSERT_TRUE(SameBits(a, b)) << name;
      }
    }
  }
}

}  // namespace
}  // namespace msrec
