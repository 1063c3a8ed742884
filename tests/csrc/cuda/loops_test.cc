// SPDX-License-Identifier: Apache-2.0
//
// Loops of a device over rows and sums of columns: what the host's loops compute, the same bits in
// each run, and nothing written between rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "emulated_device.h"
#include "loop_testing.h"

namespace msrec {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kLeakyRelu,
                                       Activation::kTanh, Activation::kSigmoid};

// ---------------------------------------------------------------- the table

TEST(KernelLoops, TableIsFull) {
  EmulatedDevice device;
  const Elementwise& loops = device.loops();
  EXPECT_EQ(std::string(loops.name), "cuda");
  // All entries are pointers; the loss, which is no layer, is the only one without a loop.
  const auto* entries = reinterpret_cast<void* const*>(&loops);
  const size_t count = sizeof(Elementwise) / sizeof(void*);
  EXPECT_EQ(std::count(entries, entries + count, static_cast<void*>(nullptr)), 1);
  EXPECT_EQ(loops.logistic_loss, nullptr);
}

TEST(KernelLoops, NeedADevice) {
  EmulatedDevice device;
  float x = 1.0f;
  EXPECT_THROW(device.loops().clear(1, 1, {&x, 1}), std::logic_error);
  EXPECT_EQ(x, 1.0f);
}

// ---------------------------------------------------------------- rows

// A loop that reads `from` and writes `to`.
using Map = void (*Elementwise::*)(int64_t, int64_t, Block, Block);

TEST(KernelLoops, Maps) {
  for (const Map map :
       {&Elementwise::copy, &Elementwise::spread, &Elementwise::gelu, &Elementwise::gelu_gradient,
        &Elementwise::round_to_float, &Elementwise::add}) {
    ForSizes([&](int64_t rows, int64_t width) {
      Drawn drawn(1);
      const size_t from = drawn.Rows(rows, width, -4.0f, 4.0f);
      const size_t to = drawn.Rows(rows, width);
      drawn.PutSpecial(from, rows, width);
      Compare(drawn.memory, 0.0, [&](const Elementwise& loops, LoopMemory* m) {
        (loops.*map)(rows, width, m->at(from), m->at(to));
      });
    });
  }
}

TEST(KernelLoops, RoundInPlace) {
  Drawn drawn(2);
  const size_t x = drawn.Rows(7, 9);
  Compare(drawn.memory, 0.0, [&](const Elementwise& loops, LoopMemory* m) {
    loops.round_to_float(7, 9, m->at(x), m->at(x));
  });
}

TEST(KernelLoops, Clear) {
  ForSizes([](int64_t rows, int64_t width) {
    Drawn drawn(3);
    const size_t x = drawn.Rows(rows, width);
    Compare(drawn.memory, 0.0,
            [&](const Elementwise& loops, LoopMemory* m) { loops.clear(rows, width, m->at(x)); });
  });
}

TEST(KernelLoops, Bfloat16) {
  ForSizes([](int64_t rows, int64_t width) {
    Drawn drawn(4);
    const int64_t ld = width + 2;
    const size_t x = drawn.Rows(rows, width);
    const size_t y = drawn.Rows(rows, width);
    drawn.PutSpecial(x, rows, width);
    const size_t halves = drawn.Halves(rows * ld);
    const size_t rounded = drawn.Halves(rows * ld);
    Compare(drawn.memory, 0.0, [&](const Elementwise& loops, LoopMemory* m) {
      loops.widen_bfloat16(rows, width, m->half(halves), ld, m->at(y));
      loops.round_bfloat16(rows, width, m->at(x), m->half(rounded), ld);
    });
  });
}

TEST(KernelLoops, Activate) {
  for (const Activation a : kActivations) {
    for (const bool biased : {false, true}) {
      ForSizes([&](int64_t rows, int64_t width) {
        Drawn drawn(5);
        const size_t x = drawn.Rows(rows, width, -20.0f, 20.0f);
        const size_t bias = drawn.Vector(width);
        drawn.PutSpecial(x, rows, width);
        Compare(drawn.memory, 0.0, [&](const Elementwise& loops, LoopMemory* m) {
          loops.activate(a, biased ? m->vector(bias) : nullptr, rows, width, m->at(x));
        });
      });
    }
  }
}

TEST(KernelLoops, Products) {
  ForSizes([](int64_t rows, int64_t width) {
    Drawn drawn(6);
    const size_t a = drawn.Rows(rows, width);
    const size_t b = drawn.Rows(rows, width);
    const size_t c = drawn.Rows(rows, width);
    const size_t row = drawn.Vector(width);
    const size_t first = drawn.Rows(rows, width);
    const size_t second = drawn.Rows(rows, width);
    Compare(drawn.memory, 0.0, [&](const Elementwise& loops, LoopMemory* m) {
      loops.multiply_add(rows, width, m->at(a), m->at(b), m->at(c), m->at(first));
      loops.add_product(rows, width, m->at(a), m->at(b), m->at(second));
      loops.add_product(rows, width, m->at(a), {m->vector(row), 0}, m->at(second));
    });
  });
}

// Masks whose rows begin anywhere, and come round more than once.
MaskRows MasksAt(LoopMemory* memory, size_t masks, int64_t count, int64_t first) {
  return {memory->vector(masks), first, count};
}

TEST(KernelLoops, MultiplyMasks) {
  for (const int64_t count : {1, 3, 299, 1000}) {
    for (const int64_t first : {int64_t{0}, int64_t{2}, int64_t{1} << 40}) {
      Drawn drawn(7);
      const size_t x = drawn.Rows(300, 5);
      const size_t masks = drawn.Vector(count * 5);
      Compare(drawn.memory, 0.0, [&](const Elementwise& loops, LoopMemory* m) {
        loops.multiply_masks(300, 5, MasksAt(m, masks, count, first), m->at(x));
      });
    }
  }
}

// ---------------------------------------------------------------- sums

std::vector<int64_t> RowsOfSums() { return {0, 1, 7, 31, 33, 300, kManyRows, 9000}; }

TEST(KernelLoops, ColumnSums) {
  for (const int64_t rows : RowsOfSums()) {
    Drawn drawn(8);
    const size_t x = drawn.Rows(rows, 5);
    const size_t sums = drawn.Vector(5);
    Compare(drawn.memory, static_cast<double>(rows), [&](const Elementwise& loops, LoopMemory* m) {
      loops.column_sums(rows, 5, m->at(x), m->vector(sums));
    });
  }
}

TEST(KernelLoops, ColumnSumsOfManyRowsAreAccurate) {
  constexpr int64_t kBatch = 70000;
  std::vector<float> x(static_cast<size_t>(kBatch));
  Rng rng(9);
  double exact = 0.0;
  for (float& f : x) {
    f = rng.Float(1.0f, 2.0f);
    exact += static_cast<double>(f);
  }
  float sum = 0.0f;
  EmulatedDevice device;
  const CurrentDevice current(&device);
  device.loops().column_sums(kBatch, 1, {x.data(), 1}, &sum);
  EXPECT_NEAR(sum, exact, 1e-6 * exact);
}

TEST(KernelLoops, ActivationGradient) {
  for (const Activation a : kActivations) {
    for (const bool sums : {false, true}) {
      for (const int64_t rows : RowsOfSums()) {
        Drawn drawn(10);
        const size_t y = drawn.Rows(rows, 5);
        const size_t g = drawn.Rows(rows, 5);
        const size_t of_bias = drawn.Vector(5);
        const double magnitude = sums ? static_cast<double>(rows) : 0.0;
        Compare(drawn.memory, magnitude, [&](const Elementwise& loops, LoopMemory* m) {
          loops.activation_gradient(a, rows, 5, m->at(y), m->at(g),
                                    sums ? m->vector(of_bias) : nullptr);
        });
      }
    }
  }
}

TEST(KernelLoops, ActivationGradientOfSpecialNumbers) {
  for (const Activation a : kActivations) {
    Drawn drawn(11);
    const size_t y = drawn.Rows(8, 3);
    const size_t g = drawn.Rows(8, 3);
    drawn.PutSpecial(y, 8, 3);
    const size_t of_bias = drawn.Vector(3);
    Compare(drawn.memory, 8.0, [&](const Elementwise& loops, LoopMemory* m) {
      loops.activation_gradient(a, 8, 3, m->at(y), m->at(g), m->vector(of_bias));
    });
  }
}

TEST(KernelLoops, ActivationGradientBfloat16) {
  for (const Activation a : {Activation::kNone, Activation::kRelu, Activation::kLeakyRelu}) {
    for (const bool sums : {false, true}) {
      for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{300}, kManyRows}) {
        Drawn drawn(12);
        const size_t g = drawn.Rows(rows, 5);
        const size_t of_bias = drawn.Vector(5);
        const size_t y = drawn.Halves(rows * 7);
        const size_t result = drawn.Halves(rows * 6);
        Compare(drawn.memory, static_cast<double>(rows),
                [&](const Elementwise& loops, LoopMemory* m) {
                  loops.activation_gradient_bfloat16(a, rows, 5, m->half(y), 7, m->at(g),
                                                     m->half(result), 6,
                                                     sums ? m->vector(of_bias) : nullptr);
                });
      }
    }
  }
}

// ---------------------------------------------------------------- batch normalization

TEST(KernelLoops, SquaredDeviations) {
  for (const int64_t rows : RowsOfSums()) {
    Drawn drawn(14);
    const size_t x = drawn.Rows(rows, 5);
    const size_t mean = drawn.Vector(5);
    const size_t sums = drawn.Vector(5);
    Compare(drawn.memory, 4.0 * static_cast<double>(rows),
            [&](const Elementwise& loops, LoopMemory* m) {
              loops.squared_deviations(rows, 5, m->at(x), m->vector(mean), m->vector(sums));
            });
  }
}

// Calls test(activation, whether there are masks, rows).
void ForNormalizations(const std::function<void(Activation, bool, int64_t)>& test) {
  for (const Activation a : kActivations) {
    for (const bool masked : {false, true}) {
      for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{300}, kManyRows}) {
        test(a, masked, rows);
      }
    }
  }
}

TEST(KernelLoops, Normalize) {
  ForNormalizations([](Activation a, bool masked, int64_t rows) {
    Drawn drawn(15);
    const size_t x = drawn.Rows(rows, 5);
    drawn.PutSpecial(x, rows, 5);
    const size_t mean = drawn.Vector(5);
    const size_t scale = drawn.Vector(5);
    const size_t beta = drawn.Vector(5);
    const size_t masks = drawn.Vector(11 * 5);
    const size_t y = drawn.Rows(rows, 5);
    Compare(drawn.memory, 0.0, [&](const Elementwise& loops, LoopMemory* m) {
      loops.normalize(a, rows, 5, m->at(x), {m->vector(mean), m->vector(scale), m->vector(beta)},
                      masked ? MasksAt(m, masks, 11, 4) : MaskRows{}, m->at(y));
    });
  });
}

TEST(KernelLoops, NormalizedGradient) {
  ForNormalizations([](Activation a, bool masked, int64_t rows) {
    for (const bool in_place : {false, true}) {
      Drawn drawn(16);
      const size_t x = drawn.Rows(rows, 5);
      const size_t mean = drawn.Vector(5);
      const size_t masks = drawn.Vector(11 * 5);
      const size_t y = drawn.Rows(rows, 5);
      const size_t g = drawn.Rows(rows, 5);
      const size_t sums = drawn.Vector(10);
      const size_t result = in_place ? g : drawn.Rows(rows, 5);
      Compare(drawn.memory, 2.0 * static_cast<double>(rows),
              [&](const Elementwise& loops, LoopMemory* m) {
                loops.normalized_gradient(a, rows, 5, m->at(x), m->vector(mean),
                                          masked ? MasksAt(m, masks, 11, 4) : MaskRows{}, m->at(y),
                                          m->at(g), m->vector(sums), m->vector(sums) + 5,
                                          m->at(result));
              });
    }
  });
}

TEST(KernelLoops, NormalizeGradient) {
  ForSizes([](int64_t rows, int64_t width) {
    Drawn drawn(17);
    const size_t x = drawn.Rows(rows, width);
    const size_t g = drawn.Rows(rows, width);
    const size_t vectors = drawn.Vector(4 * width);
    Compare(drawn.memory, 0.0, [&](const Elementwise& loops, LoopMemory* m) {
      const float* at = m->vector(vectors);
      loops.normalize_gradient(rows, width, m->at(x), at, at + width, at + 2 * width,
                               at + 3 * width, m->at(g));
    });
  });
}

}  // namespace
}  // namespace msrec
