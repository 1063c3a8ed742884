// SPDX-License-Identifier: Apache-2.0
//
// Normalization of rows, and vectors of places, against their formulas in double.
#include "sequence/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "sequence/places.h"
#include "sequence/sequence_kernels.h"
#include "testing.h"

namespace msrec {
namespace {

std::vector<float> Drawn(int64_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& each : x) each = rng.Float(-2.0f, 3.0f);
  return x;
}

TEST(NormRows, IsTheFormula) {
  ThreadPool pool(2);
  for (const int64_t width : {1, 3, 16, 21, 64}) {
    const int64_t rows = 2100;
    const std::vector<float> x = Drawn(rows * width, 1), g = Drawn(rows * width, 2);
    const std::vector<float> scale = Drawn(width, 3), shift = Drawn(width, 4);
    const NormForm form{rows, width, scale.data(), shift.data(), 1e-5f};
    std::vector<float> y(x.size()), of_x(x.size()), of_scale(scale.size()), of_shift(scale.size());
    Normalize(form, x.data(), y.data(), &pool);
    NormalizeGradient(form, x.data(), g.data(), {of_x.data(), of_scale.data(), of_shift.data()},
                      &pool);
    std::vector<double> scales(scale.size()), shifts(scale.size());
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = x.data() + r * width;
      double mean = 0.0, variance = 0.0, sum = 0.0, dot = 0.0;
      for (int64_t c = 0; c < width; ++c) mean += row[c] / static_cast<double>(width);
      for (int64_t c = 0; c < width; ++c) {
        variance += (row[c] - mean) * (row[c] - mean) / static_cast<double>(width);
      }
      const double inverse = 1.0 / std::sqrt(variance + 1e-5);
      for (int64_t c = 0; c < width; ++c) {
        const double normal = (row[c] - mean) * inverse;
        const double given = g[r * width + c];
        ASSERT_NEAR(y[r * width + c], normal * scale[c] + shift[c], 2e-5);
        scales[c] += given * normal;
        shifts[c] += given;
        sum += given * scale[c] / static_cast<double>(width);
        dot += given * scale[c] * normal / static_cast<double>(width);
      }
      for (int64_t c = 0; c < width; ++c) {
        const double normal = (row[c] - mean) * inverse;
        const double expected = inverse * (g[r * width + c] * scale[c] - sum - normal * dot);
        ASSERT_NEAR(of_x[r * width + c], expected, 2e-5 * std::max(1.0, inverse));
      }
    }
    for (int64_t c = 0; c < width; ++c) {
      EXPECT_NEAR(of_scale[c], scales[c], 5e-3);
      EXPECT_NEAR(of_shift[c], shifts[c], 5e-3);
    }
  }
}

TEST(NormRows, SetsGiveTheSameBits) {
  const std::vector<float> x = Drawn(50 * 37, 1), g = Drawn(50 * 37, 2), scale = Drawn(37, 3);
  const auto run = [&](const SequenceKernels& set) {
    std::vector<float> found(2 * 50 * 37 + 2 * 37);
    float* of_x = found.data() + 50 * 37;
    float* sums = of_x + 50 * 37;
    set.norm_rows(50, 37, x.data(), scale.data(), scale.data(), 1e-5f, found.data());
    set.norm_rows_gradient(50, 37, x.data(), scale.data(), 1e-5f, g.data(), of_x, sums, sums + 37);
    return found;
  };
  const std::vector<float> base = run(*FindSequenceKernels("base"));
  for (const char* name : {"avx2", "avx512"}) {
    const SequenceKernels* set = FindSequenceKernels(name);
    if (set == nullptr) continue;
    EXPECT_EQ(0, std::memcmp(run(*set).data(), base.data(), 4 * base.size())) << name;
  }
}

TEST(Places, AreCountedFromTheNewest) {
  ThreadPool pool(3);
  const std::vector<int64_t> offsets = {0, 4, 4, 5};
  const Lists lists(offsets.data(), 3, 5);
  const std::vector<float> values(10), table = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> times = {0, 7, 9, 10, 100};
  std::vector<float> output(10), of_table(6);
  AddPlaces({3, 2, nullptr}, lists, values.data(), table.data(), output.data(), &pool);
  EXPECT_EQ(output, (std::vector<float>{5, 6, 5, 6, 3, 4, 1, 2, 1, 2}));
  PlaceGradient({3, 2, nullptr}, lists, output.data(), of_table.data(), &pool);
  EXPECT_EQ(of_table, (std::vector<float>{2, 4, 3, 4, 10, 12}));
  AddPlaces({3, 2, times.data()}, lists, values.data(), table.data(), output.data(), &pool);
  EXPECT_EQ(output, (std::vector<float>{5, 6, 5, 6, 3, 4, 1, 2, 1, 2}));
}

}  // namespace
}  // namespace msrec
