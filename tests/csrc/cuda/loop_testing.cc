// SPDX-License-Identifier: Apache-2.0
#include "loop_testing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "emulated_device.h"

namespace msrec {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kGap = 12345.0f;  // between rows

bool IsNear(float a, float b, double magnitude) {
  if (SameNumber(a, b)) return true;
  const auto x = static_cast<double>(a);
  const auto y = static_cast<double>(b);
  return std::abs(x - y) <= 1e-5 * std::max(std::abs(x), magnitude);
}

void ExpectNear(const LoopMemory& host, const LoopMemory& device, double magnitude) {
  EXPECT_EQ(host.halves, device.halves);
  EXPECT_NEAR(host.number, device.number, 1e-7 * std::abs(host.number));
  for (size_t g = 0; g < host.grids.size(); ++g) {
    const std::vector<float>& a = host.grids[g].data;
    const std::vector<float>& b = device.grids[g].data;
    for (size_t i = 0; i < a.size(); ++i) {
      const bool near = magnitude == 0.0 ? SameNumber(a[i], b[i]) : IsNear(a[i], b[i], magnitude);
      ASSERT_TRUE(near) << "grid " << g << " at " << i << ": " << a[i] << " and " << b[i];
    }
  }
}

}  // namespace

size_t Drawn::Rows(int64_t rows, int64_t width, float low, float high) {
  Grid grid{width + 3, {}};
  grid.data.assign(static_cast<size_t>(rows * grid.ld), kGap);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < width; ++j) grid.data[r * grid.ld + j] = rng_.Float(low, high);
  }
  memory.grids.push_back(std::move(grid));
  return memory.grids.size() - 1;
}

size_t Drawn::Vector(int64_t n) {
  memory.grids.push_back({0, rng_.Floats(static_cast<size_t>(n))});
  return memory.grids.size() - 1;
}

size_t Drawn::Halves(int64_t n) {
  std::vector<uint16_t> halves(static_cast<size_t>(n));
  for (uint16_t& half : halves) {
    const auto magnitude = rng_.OneIn(50) ? 0x7f80 : rng_.Below(0x4100);
    half = static_cast<uint16_t>(magnitude | (rng_.OneIn(2) ? 0x8000 : 0));
  }
  memory.halves.push_back(std::move(halves));
  return memory.halves.size() - 1;
}

void Drawn::PutSpecial(size_t grid, int64_t rows, int64_t width) {
  const float special[] = {kNan, kInf, -kInf, 0.0f, -0.0f, 3e38f, -3e38f, 1e-41f};
  Grid& to = memory.grids[grid];
  int64_t n = 0;
  for (const float x : special) {
    if (n >= rows * width) return;
    to.data[n / width * to.ld + n % width] = x;
    ++n;
  }
}

bool SameNumber(float a, float b) {
  return SameBits(&a, &b, 1) || (std::isnan(a) && std::isnan(b));
}

void Compare(const LoopMemory& memory, double magnitude, const Loop& loop) {
  LoopMemory host = memory, first = memory, second = memory;
  loop(*FindElementwise("base"), &host);
  EmulatedDevice device;
  const CurrentDevice current(&device);
  loop(device.loops(), &first);
  loop(device.loops(), &second);
  ExpectNear(host, first, magnitude);
  EXPECT_EQ(first.halves, second.halves);
  EXPECT_EQ(first.number, second.number);
  for (size_t g = 0; g < first.grids.size(); ++g) {
    EXPECT_TRUE(SameBits(first.grids[g].data, second.grids[g].data)) << "second run";
  }
}

void ForSizes(const std::function<void(int64_t, int64_t)>& test) {
  for (const int64_t rows : {0, 1, 7, 300}) {
    for (const int64_t width : {1, 5, 37}) test(rows, width);
  }
}

}  // namespace msrec
