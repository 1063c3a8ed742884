// SPDX-License-Identifier: Apache-2.0
//
// Helpers for tests of a device's loops: random blocks, and a loop run on the host and on the
// emulated device.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "dense/elementwise.h"
#include "testing.h"

namespace msrec {

// Rows with gaps between them.
struct Grid {
  int64_t ld;
  std::vector<float> data;

  Block block() { return {data.data(), ld}; }
  float* vector() { return data.data(); }
};

// The blocks that a loop reads and writes; `number` is what it returns.
struct LoopMemory {
  std::vector<Grid> grids;
  std::vector<std::vector<uint16_t>> halves;
  double number = 0.0;

  Block at(size_t i) { return grids[i].block(); }
  float* vector(size_t i) { return grids[i].vector(); }
  uint16_t* half(size_t i) { return halves[i].data(); }
};

// Draws the memory of a loop.
class Drawn {
 public:
  explicit Drawn(uint64_t seed) : rng_(seed) {}

  // Adds random rows with gaps between them, and returns their number in the memory.
  size_t Rows(int64_t rows, int64_t width, float low = -1.0f, float high = 1.0f);
  // Adds a vector of random numbers.
  size_t Vector(int64_t n);
  // Adds bfloat16 numbers, some infinite.
  size_t Halves(int64_t n);
  // Puts special numbers at the beginning of a grid's rows.
  void PutSpecial(size_t grid, int64_t rows, int64_t width);

  LoopMemory memory;

 private:
  Rng rng_;
};

// Whether bits are the same; of two NaN any are.
bool SameNumber(float a, float b);

using Loop = std::function<void(const Elementwise& loops, LoopMemory* memory)>;

// Runs a loop on the host, and twice on the device. Results are the host's bits where `magnitude`
// is 0; else they differ by rounding, in sums of numbers of that magnitude together.
void Compare(const LoopMemory& memory, double magnitude, const Loop& loop);

constexpr int64_t kManyRows = 5000;

// Calls test(rows, width) for some of both, no rows among them.
void ForSizes(const std::function<void(int64_t, int64_t)>& test);

}  // namespace msrec
