// SPDX-License-Identifier: Apache-2.0
//
// Loops of a device over groups of columns, pairs, mixtures and cross networks: as loops_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <vector>

#include "emulated_device.h"
#include "loop_testing.h"

namespace msrec {
namespace {

// Calls test(rows, groups, group).
void ForGroups(const std::function<void(int64_t, int64_t, int64_t)>& test) {
  for (const int64_t rows : {0, 1, 7, 300}) {
    for (const int64_t groups : {1, 3}) {
      for (const int64_t group : {1, 4, 33}) test(rows, groups, group);
    }
  }
}

TEST(KernelLoops, Softmax) {
  ForGroups([](int64_t rows, int64_t groups, int64_t group) {
    const int64_t width = groups * group;
    Drawn drawn(1);
    const size_t x = drawn.Rows(rows, width, -20.0f, 20.0f);
    const size_t special = drawn.Rows(rows, width);
    drawn.PutSpecial(special, rows, width);
    const size_t g = drawn.Rows(rows, width);
    Compare(drawn.memory, 1.0, [&](const Elementwise& loops, LoopMemory* m) {
      loops.softmax(rows, groups, group, m->at(x));
      loops.softmax(rows, groups, group, m->at(special));
      loops.softmax_gradient(rows, groups, group, m->at(x), m->at(g));
    });
  });
}

// ---------------------------------------------------------------- gates

TEST(KernelLoops, ScaleGroups) {
  ForGroups([](int64_t rows, int64_t groups, int64_t group) {
    const int64_t width = groups * group;
    Drawn drawn(2);
    const size_t scales = drawn.Rows(rows, groups);
    const size_t x = drawn.Rows(rows, width);
    const size_t vectors = drawn.Vector(width);
    const size_t y = drawn.Rows(rows, width);
    const size_t z = drawn.Rows(rows, width);
    Compare(drawn.memory, 0.0, [&](const Elementwise& loops, LoopMemory* m) {
      loops.scale_groups(rows, groups, group, m->at(scales), m->at(x), m->at(y));
      loops.scale_groups(rows, groups, group, m->at(scales), {m->vector(vectors), 0}, m->at(z));
    });
  });
}

TEST(KernelLoops, ScaleGroupsGradient) {
  for (const bool adds : {false, true}) {
    ForGroups([&](int64_t rows, int64_t groups, int64_t group) {
      const int64_t width = groups * group;
      Drawn drawn(3);
      const size_t scales = drawn.Rows(rows, groups);
      const size_t x = drawn.Rows(rows, width);
      const size_t g = drawn.Rows(rows, width);
      const size_t of_scales = drawn.Rows(rows, groups);
      const size_t of_x = drawn.Rows(rows, width);
      Compare(drawn.memory, static_cast<double>(group),
              [&](const Elementwise& loops, LoopMemory* m) {
                loops.scale_groups_gradient(rows, groups, group, m->at(scales), m->at(x), m->at(g),
                                            {m->at(of_scales), adds}, {m->at(of_x), !adds});
              });
    });
  }
}

// A parameter's vectors are scaled: their gradient is a sum over rows.
TEST(KernelLoops, ScaleGroupsGradientOfVectors) {
  for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{7}, kManyRows}) {
    for (const bool adds : {false, true}) {
      Drawn drawn(4);
      const size_t numbers = drawn.Rows(rows, 3);
      const size_t vectors = drawn.Vector(12);
      const size_t g = drawn.Rows(rows, 12);
      const size_t of_numbers = drawn.Rows(rows, 3);
      const size_t sums = drawn.Vector(12);
      Compare(drawn.memory, static_cast<double>(rows),
              [&](const Elementwise& loops, LoopMemory* m) {
                loops.scale_groups_gradient(rows, 3, 4, m->at(numbers), {m->vector(vectors), 0},
                                            m->at(g), {m->at(of_numbers), adds},
                                            {{m->vector(sums), 0}, true});
              });
    }
  }
}

TEST(KernelLoops, ScaleGroupsGradientOfScalesOfAllRows) {
  for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{7}, kManyRows}) {
    Drawn drawn(5);
    const size_t scales = drawn.Vector(3);
    const size_t x = drawn.Rows(rows, 12);
    const size_t g = drawn.Rows(rows, 12);
    const size_t sums = drawn.Vector(3);
    const size_t of_x = drawn.Rows(rows, 12);
    Compare(drawn.memory, 4.0 * static_cast<double>(rows),
            [&](const Elementwise& loops, LoopMemory* m) {
              loops.scale_groups_gradient(rows, 3, 4, {m->vector(scales), 0}, m->at(x), m->at(g),
                                          {{m->vector(sums), 0}, true}, {m->at(of_x), false});
            });
  }
}

TEST(KernelLoops, SumOverRowsOnlyAdds) {
  EmulatedDevice device;
  const CurrentDevice current(&device);
  float x[4] = {};
  const Block rows{x, 1};
  EXPECT_THROW(device.loops().scale_groups_gradient(4, 1, 1, rows, rows, rows, {rows, false},
                                                    {{x, 0}, false}),
               std::logic_error);
}

// ---------------------------------------------------------------- pairs

// Calls test(rows, vectors, dim, flag).
void ForVectors(const std::function<void(int64_t, int64_t, int64_t, bool)>& test) {
  for (const int64_t rows : {0, 1, 7, 50}) {
    for (const int64_t vectors : {1, 2, 5, 27}) {
      for (const int64_t dim : {1, 6, 16}) {
        for (const bool flag : {false, true}) test(rows, vectors, dim, flag);
      }
    }
  }
}

TEST(KernelLoops, PairDots) {
  ForVectors([](int64_t rows, int64_t vectors, int64_t dim, bool diagonal) {
    Drawn drawn(6);
    const int64_t pairs = diagonal ? vectors * (vectors + 1) / 2 : vectors * (vectors - 1) / 2;
    const size_t x = drawn.Rows(rows, vectors * dim);
    const size_t y = drawn.Rows(rows, pairs);
    Compare(drawn.memory, static_cast<double>(dim), [&](const Elementwise& loops, LoopMemory* m) {
      std::vector<float> scratch(static_cast<size_t>(PairScratch::Forward(vectors, dim)));
      loops.pair_dots(rows, vectors, dim, diagonal, m->at(x), scratch.data(), m->at(y));
    });
  });
}

// Each number of a pair finds its vectors, where float32 no longer has all numbers.
TEST(KernelLoops, PairsOfManyVectors) {
  constexpr int64_t kVectors = 2500;
  for (const bool diagonal : {false, true}) {
    Drawn drawn(7);
    const int64_t pairs = kVectors * (kVectors + (diagonal ? 1 : -1)) / 2;
    const size_t x = drawn.Rows(1, kVectors);
    const size_t y = drawn.Rows(1, pairs);
    Compare(drawn.memory, 0.0, [&](const Elementwise& loops, LoopMemory* m) {
      std::vector<float> scratch(static_cast<size_t>(PairScratch::Forward(kVectors, 1)));
      loops.pair_dots(1, kVectors, 1, diagonal, m->at(x), scratch.data(), m->at(y));
    });
  }
}

TEST(KernelLoops, PairDotsGradient) {
  for (const bool adds : {false, true}) {
    ForVectors([&](int64_t rows, int64_t vectors, int64_t dim, bool diagonal) {
      Drawn drawn(8);
      const int64_t pairs = diagonal ? vectors * (vectors + 1) / 2 : vectors * (vectors - 1) / 2;
      const size_t x = drawn.Rows(rows, vectors * dim);
      const size_t of_y = drawn.Rows(rows, pairs);
      const size_t of_x = drawn.Rows(rows, vectors * dim);
      drawn.PutSpecial(x, rows, vectors * dim);
      const double magnitude = 2.0 * static_cast<double>(vectors);
      Compare(drawn.memory, magnitude, [&](const Elementwise& loops, LoopMemory* m) {
        std::vector<float> scratch(static_cast<size_t>(PairScratch::Backward(vectors)));
        loops.pair_dots_gradient(rows, vectors, dim, diagonal, m->at(x), m->at(of_y),
                                 scratch.data(), adds, m->at(of_x));
      });
    });
  }
}

TEST(KernelLoops, PairSums) {
  ForVectors([](int64_t rows, int64_t fields, int64_t dim, bool adds) {
    Drawn drawn(9);
    const size_t x = drawn.Rows(rows, fields * dim);
    const size_t y = drawn.Rows(rows, dim);
    const size_t of_y = drawn.Rows(rows, dim);
    const size_t of_x = drawn.Rows(rows, fields * dim);
    Compare(drawn.memory, static_cast<double>(fields * fields),
            [&](const Elementwise& loops, LoopMemory* m) {
              loops.pair_sums(rows, fields, dim, m->at(x), m->at(y));
              loops.pair_sums_gradient(rows, fields, dim, m->at(x), m->at(of_y), adds, m->at(of_x));
            });
  });
}

TEST(KernelLoops, RowSums) {
  ForSizes([](int64_t rows, int64_t width) {
    Drawn drawn(10);
    const size_t x = drawn.Rows(rows, width);
    const size_t y = drawn.Rows(rows, 1);
    Compare(drawn.memory, static_cast<double>(width), [&](const Elementwise& loops, LoopMemory* m) {
      loops.row_sums(rows, width, m->at(x), m->at(y));
    });
  });
}

// ---------------------------------------------------------------- mixtures

TEST(KernelLoops, Mixtures) {
  for (const int64_t rows : {0, 1, 7, 300}) {
    for (const MixtureShape& shape : {MixtureShape{1, 1, 1}, {2, 5, 9}, {3, 4, 33}}) {
      for (const bool adds : {false, true}) {
        Drawn drawn(11);
        const size_t units = drawn.Rows(rows, shape.experts * shape.width);
        const size_t gates = drawn.Rows(rows, shape.tasks * shape.experts);
        const size_t y = drawn.Rows(rows, shape.tasks * shape.width);
        const size_t of_y = drawn.Rows(rows, shape.tasks * shape.width);
        const size_t of_units = drawn.Rows(rows, shape.experts * shape.width);
        const size_t of_gates = drawn.Rows(rows, shape.tasks * shape.experts);
        const double magnitude = static_cast<double>(shape.width);
        Compare(drawn.memory, magnitude, [&](const Elementwise& loops, LoopMemory* m) {
          loops.mix(rows, shape, m->at(units), m->at(gates), m->at(y));
          loops.mix_units_gradient(rows, shape, m->at(gates), m->at(of_y), adds, m->at(of_units));
          loops.mix_gates_gradient(rows, shape, m->at(units), m->at(of_y), adds, m->at(of_gates));
        });
      }
    }
  }
}

// ---------------------------------------------------------------- cross networks

TEST(KernelLoops, CrossCombineGradient) {
  for (const int adds : {0, 1, 2, 3, 4, 5, 6, 7}) {
    for (const bool same : {false, true}) {
      ForSizes([&](int64_t rows, int64_t width) {
        Drawn drawn(12);
        const size_t x0 = drawn.Rows(rows, width);
        const size_t t = drawn.Rows(rows, width);
        const size_t g = drawn.Rows(rows, width);
        const size_t of_x0 = drawn.Rows(rows, width);
        const size_t of_t = drawn.Rows(rows, width);
        const size_t of_x = same ? of_x0 : drawn.Rows(rows, width);
        Compare(drawn.memory, 0.0, [&](const Elementwise& loops, LoopMemory* m) {
          loops.cross_combine_gradient(
              rows, width, m->at(x0), m->at(t), m->at(g), {m->at(of_x0), (adds & 1) != 0},
              {m->at(of_t), (adds & 2) != 0}, {m->at(of_x), (adds & 4) != 0});
        });
      });
    }
  }
}

struct CrossCase {
  int64_t rows, width, layers;
  bool rounds, adds;
};

// Forward and backward: the gradient reads the products of this forward pass.
void CompareCross(const CrossCase& c) {
  Drawn drawn(13);
  const size_t x = drawn.Rows(c.rows, c.width, -0.1f, 0.1f);
  const size_t factor = c.rounds ? drawn.Rows(c.rows, c.width, -0.1f, 0.1f) : x;
  const size_t weight = drawn.Vector(c.layers * c.width);
  const size_t constants = drawn.Vector(c.layers);
  const size_t bias = drawn.Vector(c.width);
  const size_t products = drawn.Rows(c.rows, c.layers);
  const size_t y = drawn.Rows(c.rows, c.width);
  const size_t g = drawn.Rows(c.rows, c.width);
  const size_t of_x = drawn.Rows(c.rows, c.width);
  const size_t sums = drawn.Vector((c.layers + 1) * c.width + c.layers);
  for (float& w : drawn.memory.grids[weight].data) w *= 0.1f;
  for (float& w : drawn.memory.grids[constants].data) w *= 0.1f;
  const auto run = [&](const Elementwise& loops, LoopMemory* m) {
    const CrossRows cross{c.width,         c.layers, m->vector(weight), m->vector(constants),
                          m->vector(bias), false};
    loops.cross_rows(c.rows, cross, m->at(x), m->at(factor), m->at(products), m->at(y));
    loops.cross_rows_gradient(c.rows, cross, m->at(x), m->at(factor), m->at(products), m->at(g),
                              {m->at(of_x), c.adds}, m->vector(sums));
  };
  Compare(drawn.memory, 4.0 * static_cast<double>(std::max<int64_t>(c.rows, c.width)), run);
}

TEST(KernelLoops, CrossRows) {
  for (const int64_t rows : {0, 1, 7, 300}) {
    for (const int64_t width : {1, 5, 37}) {
      for (const int64_t layers : {1, 3, 20}) {
        CompareCross({rows, width, layers, false, false});
        CompareCross({rows, width, layers, true, true});
      }
    }
  }
  CompareCross({kManyRows, 5, 3, false, true});
}

// Gradients of products are rounded to bfloat16: all numbers here have so few bits that no sum of
// them is rounded, so that the order of sums does not change what is rounded.
TEST(KernelLoops, CrossRowsRoundGradientsOfProducts) {
  constexpr int64_t kRows = 7, kWidth = 9, kLayers = 2;
  Drawn drawn(14);
  const size_t x = drawn.Rows(kRows, kWidth);
  const size_t g = drawn.Rows(kRows, kWidth);
  const size_t weight = drawn.Vector(kLayers * kWidth);
  const size_t constants = drawn.Vector(kLayers);
  const size_t bias = drawn.Vector(kWidth);
  const size_t products = drawn.Rows(kRows, kLayers);
  const size_t y = drawn.Rows(kRows, kWidth);
  const size_t of_x = drawn.Rows(kRows, kWidth);
  const size_t sums = drawn.Vector((kLayers + 1) * kWidth + kLayers);
  for (Grid& grid : drawn.memory.grids) {
    for (float& f : grid.data) f = std::round(f * 4.0f) / 4.0f;
  }
  for (const bool rounds : {false, true}) {
    Compare(drawn.memory, 0.0, [&](const Elementwise& loops, LoopMemory* m) {
      const CrossRows cross{kWidth,          kLayers, m->vector(weight), m->vector(constants),
                            m->vector(bias), rounds};
      loops.cross_rows(kRows, cross, m->at(x), m->at(x), m->at(products), m->at(y));
      loops.cross_rows_gradient(kRows, cross, m->at(x), m->at(x), m->at(products), m->at(g),
                                {m->at(of_x), false}, m->vector(sums));
    });
  }
}

}  // namespace
}  // namespace msrec
