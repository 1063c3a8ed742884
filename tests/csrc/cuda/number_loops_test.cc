// SPDX-License-Identifier: Apache-2.0
//
// Loops of a device over vectors of numbers: as loops_test.cc.
#include <gtest/gtest.h>

#include <functional>

#include "loop_testing.h"

namespace msrec {
namespace {

constexpr int64_t kNumbers = 3;

// Calls test(rows, dim, each) for numbers of bins or frequencies.
void ForShapes(const std::function<void(int64_t, int64_t, int64_t)>& test) {
  for (const int64_t rows : {0, 1, 7, 300}) {
    for (const int64_t dim : {1, 4, 19}) {
      for (const int64_t each : {1, 6}) test(rows, dim, each);
    }
  }
}

TEST(KernelLoops, Curves) {
  ForShapes([](int64_t rows, int64_t dim, int64_t bins) {
    Drawn drawn(1);
    const size_t knots = drawn.Vector(kNumbers * (bins + 1) * dim);
    const size_t x = drawn.Rows(rows, kNumbers, -1.5f, 1.5f);
    const size_t special = drawn.Rows(rows, kNumbers);
    drawn.PutSpecial(special, rows, kNumbers);
    const size_t y = drawn.Rows(rows, kNumbers * dim);
    const size_t z = drawn.Rows(rows, kNumbers * dim);
    Compare(drawn.memory, 0.0, [&](const Elementwise& loops, LoopMemory* m) {
      const NumberCurves curves{kNumbers, dim, bins, m->vector(knots)};
      loops.curves(rows, curves, m->at(x), m->at(y));
      loops.curves(rows, curves, m->at(special), m->at(z));
    });
  });
}

TEST(KernelLoops, CurvesGradient) {
  for (const bool adds : {false, true}) {
    ForShapes([&](int64_t rows, int64_t dim, int64_t bins) {
      Drawn drawn(2);
      const int64_t floats = kNumbers * (bins + 1) * dim;
      const size_t knots = drawn.Vector(floats);
      const size_t x = drawn.Rows(rows, kNumbers, -1.5f, 1.5f);
      const size_t g = drawn.Rows(rows, kNumbers * dim);
      const size_t of_x = drawn.Rows(rows, kNumbers);
      const size_t sums = drawn.Vector(floats);
      Compare(drawn.memory, 8.0 * static_cast<double>(rows + dim),
              [&](const Elementwise& loops, LoopMemory* m) {
                const NumberCurves curves{kNumbers, dim, bins, m->vector(knots)};
                loops.curves_gradient(rows, curves, m->at(x), m->at(g), {m->at(of_x), adds},
                                      m->vector(sums));
              });
    });
  }
}

TEST(KernelLoops, Waves) {
  ForShapes([](int64_t rows, int64_t dim, int64_t count) {
    for (const bool adds : {false, true}) {
      Drawn drawn(3);
      const int64_t width = kNumbers * dim;
      const size_t frequencies = drawn.Vector(kNumbers * count);
      const size_t weight = drawn.Vector(dim * 2 * count);
      const size_t bias = drawn.Vector(dim);
      const size_t x = drawn.Rows(rows, kNumbers, -2.0f, 2.0f);
      const size_t y = drawn.Rows(rows, width);
      const size_t z = drawn.Rows(rows, width);
      const size_t g = drawn.Rows(rows, width);
      const size_t of_x = drawn.Rows(rows, kNumbers);
      const size_t sums = drawn.Vector(kNumbers * count + dim * 2 * count + dim);
      const size_t scratch = drawn.Vector(NumberWaves::Scratch(dim, count));
      Compare(drawn.memory, 20.0 * static_cast<double>(rows * kNumbers + dim * count),
              [&](const Elementwise& loops, LoopMemory* m) {
                const NumberWaves waves{
                    kNumbers,       dim, count, m->vector(frequencies), m->vector(weight),
                    m->vector(bias)};
                loops.waves(rows, waves, m->at(x), m->vector(scratch), m->at(y));
                loops.waves_gradient(rows, waves, m->at(x), m->at(z), m->at(g), m->vector(scratch),
                                     {m->at(of_x), adds}, m->vector(sums));
                for (float& each : m->grids[scratch].data) each = 0.0f;  // a device has none
              });
    }
  });
}

}  // namespace
}  // namespace msrec
