// SPDX-License-Identifier: Apache-2.0
//
// The loops of normalization, activation and dropout in one pass, of every instruction set, against
// the same steps one after the other.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "dense/elementwise.h"
#include "testing.h"

namespace msrec {
namespace {

constexpr int64_t kRows = 9, kCount = 4;

struct Case {
  int64_t width;
  MaskRows masks;
  std::vector<float> x, g, mean, scale, beta, all_masks;

  Case(int64_t columns, bool drops, Rng* rng)
      : width(columns),
        x(rng->Floats(kRows * columns, -2.0f, 2.0f)),
        g(rng->Floats(kRows * columns, -1.0f, 1.0f)),
        mean(rng->Floats(columns, -1.0f, 1.0f)),
        scale(rng->Floats(columns, 0.5f, 2.0f)),
        beta(rng->Floats(columns, -1.0f, 1.0f)),
        all_masks(rng->Floats(kCount * columns, 0.0f, 1.0f)) {
    for (float& m : all_masks) m = m < 0.3f ? 0.0f : 1.25f;
    if (drops) masks = {all_masks.data(), 3, kCount};
  }
  Block block(std::vector<float>* of) const { return {of->data(), width}; }
  float Mask(int64_t r, int64_t j) const {
    return masks.data == nullptr ? 1.0f : all_masks[(masks.first + r) % kCount * width + j];
  }
};

struct Found {
  std::vector<float> y, dx, sums, products;
  bool operator==(const Found& o) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
    };
    return same(y, o.y) && same(dx, o.dx) && same(sums, o.sums) && same(products, o.products);
  }
};

Found Empty(const Case& c) {
  return {std::vector<float>(c.x.size()), std::vector<float>(c.x.size()),
          std::vector<float>(static_cast<size_t>(c.width), 0.5f),
          std::vector<float>(static_cast<size_t>(c.width), -0.5f)};
}

Found InOnePass(const Elementwise& set, Activation a, Case c, bool in_place) {
  Found f = Empty(c);
  set.normalize(a, kRows, c.width, c.block(&c.x), {c.mean.data(), c.scale.data(), c.beta.data()},
                c.masks, c.block(&f.y));
  if (in_place) f.dx = c.g;
  set.normalized_gradient(a, kRows, c.width, c.block(&c.x), c.mean.data(), c.masks, c.block(&f.y),
                          in_place ? c.block(&f.dx) : c.block(&c.g), f.sums.data(),
                          f.products.data(), c.block(&f.dx));
  return f;
}

Found StepByStep(const Elementwise& set, Activation a, Case c) {
  Found f = Empty(c);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < c.width; ++j) {
      const int64_t at = r * c.width + j;
      f.y[at] = (c.x[at] - c.mean[j]) * c.scale[j];
      f.dx[at] = c.g[at] * c.Mask(r, j);
    }
  }
  set.activate(a, c.beta.data(), kRows, c.width, c.block(&f.y));
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < c.width; ++j) f.y[r * c.width + j] *= c.Mask(r, j);
  }
  set.activation_gradient(a, kRows, c.width, c.block(&f.y), c.block(&f.dx), f.sums.data());
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < c.width; ++j) {
      const int64_t at = r * c.width + j;
      f.products[j] += f.dx[at] * (c.x[at] - c.mean[j]);
    }
  }
  return f;
}

TEST(NormalizationKernelsTest, OnePassIsTheSameAsItsSteps) {
  Rng rng(1);
  for (const Activation a : {Activation::kNone, Activation::kRelu, Activation::kLeakyRelu,
                             Activation::kTanh, Activation::kSigmoid}) {
    for (const int64_t width : {1, 7, 16, 21, 400}) {
      for (const bool drops : {false, true}) {
        const Case c(width, drops, &rng);
        const Found expected = StepByStep(*FindElementwise("base"), a, c);
        for (const char* name : {"base", "avx2", "avx512"}) {
          const Elementwise* set = FindElementwise(name);
          if (set == nullptr) continue;
          EXPECT_EQ(InOnePass(*set, a, c, false), expected) << name << " " << width;
          EXPECT_EQ(InOnePass(*set, a, c, true), expected) << name << " " << width;
        }
      }
    }
  }
}

}  // namespace
}  // namespace msrec
