// SPDX-License-Identifier: Apache-2.0
//
// Products against a naive one in double precision: all transposes, packed and not, added or not,
// odd sizes and leading dimensions, both types of factors.
#include "dense/onednn.h"

#include <cmath>
#include <cstring>
#include <thread>

#include "dense/elementwise.h"
#include "dense_testing.h"
#include "testing.h"

namespace msrec {
namespace {

class OneDnnProducts : public OneDnnTest {};

uint16_t Bfloat16(float x) {
  uint16_t rounded;
  FindElementwise("base")->round_bfloat16(1, 1, {&x, 1}, &rounded, 1);
  return rounded;
}

float FromBfloat16(uint16_t bits) {
  const uint32_t whole = static_cast<uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &whole, sizeof(x));
  return x;
}

// A matrix with NaN between the rows, as floats and as the factor that a product reads.
struct Matrix {
  int64_t rows, columns, ld;
  Poisoned floats, halves;

  Matrix(int64_t rows, int64_t columns, int64_t ld, Rng* rng)
      : rows(rows), columns(columns), ld(ld), floats(rows * ld), halves((rows * ld + 1) / 2) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        // Few bits, so that rounding to bfloat16 changes nothing.
        const float x = FromBfloat16(Bfloat16(rng->Float(-1.0f, 1.0f)));
        floats.data()[r * ld + c] = x;
        reinterpret_cast<uint16_t*>(halves.data())[r * ld + c] = Bfloat16(x);
      }
    }
  }
  const void* factor(FactorType type) const {
    return type == FactorType::kFloat32 ? floats.data() : halves.data();
  }
  float at(int64_t r, int64_t c, bool transposed) const {
    return floats.data()[transposed ? c * ld + r : r * ld + c];
  }
};

ProductShape RandomShape(Rng* rng, bool bfloat16) {
  ProductShape s;
  const auto size = [&] { return 1 + static_cast<int64_t>(rng->Below(rng->OneIn(4) ? 4 : 70)); };
  s.m = size(), s.n = size(), s.k = size();
  s.transposed_a = rng->OneIn(2), s.transposed_b = rng->OneIn(2);
  s.accumulates = rng->OneIn(2), s.packed_b = rng->OneIn(2);
  const auto gap = [&] { return static_cast<int64_t>(rng->OneIn(2) ? 0 : rng->Below(19)); };
  s.lda = (s.transposed_a ? s.m : s.k) + gap();
  s.ldb = (s.transposed_b ? s.k : s.n) + gap();
  s.ldc = s.n + gap();
  s.type = bfloat16 ? FactorType::kBFloat16 : FactorType::kFloat32;
  return s;
}

void CheckProduct(const ProductShape& s, Rng* rng) {
  const Matrix a(s.transposed_a ? s.k : s.m, s.transposed_a ? s.m : s.k, s.lda, rng);
  const Matrix b(s.transposed_b ? s.n : s.k, s.transposed_b ? s.k : s.n, s.ldb, rng);
  Matrix c(s.m, s.n, s.ldc, rng);
  const std::vector<float> before = c.floats.Values();
  const auto product = OneDnn::Find(s);
  Poisoned packed(static_cast<int64_t>(product->packed_bytes() + 3) / 4);
  ASSERT_EQ(product->packed_bytes() != 0, s.packed_b);
  const void* factor = b.factor(s.type);
  if (s.packed_b) {
    product->Pack(b.floats.data(), packed.data());
    factor = packed.data();
  }
  product->Run(a.factor(s.type), factor, c.floats.data());
  ASSERT_TRUE(packed.GuardsAreWhole() && c.floats.GuardsAreWhole());
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.ldc; ++j) {
      const float got = c.floats.data()[i * s.ldc + j];
      if (j >= s.n) {
        ASSERT_TRUE(std::isnan(got)) << "written between rows";
        continue;
      }
      double sum = s.accumulates ? static_cast<double>(before[i * s.ldc + j]) : 0.0;
      for (int64_t l = 0; l < s.k; ++l) {
        sum += static_cast<double>(a.at(i, l, s.transposed_a)) * b.at(l, j, s.transposed_b);
      }
      ASSERT_NEAR(got, sum, 2e-6 * static_cast<double>(s.k + 1))
          << s.m << "x" << s.n << "x" << s.k << " ld " << s.lda << " " << s.ldb << " " << s.ldc
          << " transposed " << s.transposed_a << s.transposed_b << " adds " << s.accumulates
          << " packed " << s.packed_b;
    }
  }
}

TEST_F(OneDnnProducts, AreThoseOfANaiveLoop) {
  Rng rng(1);
  for (size_t i = 0; i < 1000 / kFewer; ++i) {
    ASSERT_NO_FATAL_FAILURE(CheckProduct(RandomShape(&rng, false), &rng));
  }
}

TEST_F(OneDnnProducts, AreThoseOfANaiveLoopInBfloat16) {
  if (!OneDnn::has_bfloat16()) GTEST_SKIP() << "this processor has no fast bfloat16";
  Rng rng(2);
  for (size_t i = 0; i < 1000 / kFewer; ++i) {
    ASSERT_NO_FATAL_FAILURE(CheckProduct(RandomShape(&rng, true), &rng));
  }
}

TEST_F(OneDnnProducts, ThreadsShareOneProduct) {
  ProductShape shape;
  shape.m = 33, shape.n = 65, shape.k = 129;
  shape.lda = 129, shape.ldb = 65, shape.ldc = 65;
  Rng rng(3);
  const std::vector<float> a = rng.Floats(33 * 129), b = rng.Floats(129 * 65);
  std::vector<float> expected(33 * 65);
  OneDnn::Find(shape)->Run(a.data(), b.data(), expected.data());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::vector<float> c(33 * 65);
      for (int i = 0; i < 50; ++i) {
        OneDnn::Find(shape)->Run(a.data(), b.data(), c.data());
        EXPECT_TRUE(SameBits(c, expected));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(OneDnnProducts, MoreShapesThanAreKept) {
  ProductShape shape;
  const float a = 2.0f, b = 3.0f;
  shape.m = shape.n = shape.k = 1;
  shape.lda = shape.ldb = 1;
  for (int64_t ld = 1; ld < static_cast<int64_t>(9000 / kFewer); ++ld) {
    shape.ldc = ld;
    float c = 0.0f;
    OneDnn::Find(shape)->Run(&a, &b, &c);
    ASSERT_EQ(c, 6.0f);
  }
}

TEST_F(OneDnnProducts, LibrariesThatCannotBeUsedAreRefused) {
  // A library is opened once: whatever comes later is the same one.
  EXPECT_EQ(OneDnn::Load("/nowhere/libdnnl.so.3"), "");
  EXPECT_TRUE(OneDnn::loaded());
  EXPECT_FALSE(OneDnn::version().empty());
}

TEST(LeadingDimensions, SuitTheCache) {
  for (int64_t width = 1; width < 5000; ++width) {
    const int64_t ld = LeadingDimension(width);
    ASSERT_GE(ld, width);
    ASSERT_LT(ld, width + 32);
    ASSERT_EQ(ld % 16, 0);
    ASSERT_NE(ld % 256, 0);
  }
}

}  // namespace
}  // namespace msrec
