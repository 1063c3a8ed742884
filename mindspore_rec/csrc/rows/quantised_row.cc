// SPDX-License-Identifier: Apache-2.0
#include "rows/quantised_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "util/float16.h"

namespace msrec {
namespace {

constexpr double kLargest = 65504.0;  // the largest finite float16
constexpr uint16_t kLargestHalf = 0x7bff;
constexpr uint16_t kNanHalf = 0x7e00;

struct Range {
  float least = std::numeric_limits<float>::infinity();
  float greatest = -std::numeric_limits<float>::infinity();
  bool finite = true;
};

// Returns the least and the greatest number. The loop keeps four independent minima and maxima, so
// that a comparison need not wait for the previous comparison.
Range RangeOf(const float* numbers, int32_t dim) {
  constexpr int kLanes = 4;
  Range lanes[kLanes];
  uint32_t exponent[kLanes] = {};
  constexpr uint32_t kInfinity = 0x7f800000;
  const auto take = [&](int lane, float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    exponent[lane] = std::max(exponent[lane], bits & kInfinity);
    lanes[lane].least = x < lanes[lane].least ? x : lanes[lane].least;
    lanes[lane].greatest = x > lanes[lane].greatest ? x : lanes[lane].greatest;
  };
  int32_t j = 0;
  for (; j + kLanes <= dim; j += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) take(lane, numbers[j + lane]);
  }
  for (; j < dim; ++j) take(0, numbers[j]);
  Range range;
  for (int lane = 0; lane < kLanes; ++lane) {
    range.least = std::min(range.least, lanes[lane].least);
    range.greatest = std::max(range.greatest, lanes[lane].greatest);
    range.finite = range.finite && exponent[lane] != kInfinity;
  }
  return range;
}

// Returns the greatest finite float16 that is not above x.
uint16_t HalfDown(double x) {
  const uint16_t near = ToFloat16(static_cast<float>(std::clamp(x, -kLargest, kLargest)));
  if (FromFloat16(near) <= x || near == (kLargestHalf | 0x8000)) return near;
  if ((near & 0x7fff) == 0) return 0x8001;
  return (near & 0x8000) != 0 ? near + 1 : near - 1;
}

// Returns the least float16 that is not below x, limited to the range from 0 to the largest finite
// float16.
uint16_t HalfUp(double x) {
  const uint16_t near = ToFloat16(static_cast<float>(std::clamp(x, 0.0, kLargest)));
  return FromFloat16(near) < x && near < kLargestHalf ? near + 1 : near;
}

void WriteHalves(uint16_t scale, uint16_t offset, char* to) {
  std::memcpy(to, &scale, sizeof(scale));
  std::memcpy(to + sizeof(scale), &offset, sizeof(offset));
}

// Writes a row of equal numbers; each number is offset + `rest`. All numbers of the row get the
// same code, which is the smallest code for which `rest` / code does not overflow float16. The
// scale is the float16 nearest to `rest` / code.
void QuantiseEqual(double rest, int32_t dim, int32_t bits, uint16_t offset, char* to) {
  const double most = bits == 8 ? 255.0 : 15.0;
  const double code = std::clamp(std::ceil(rest / kLargest), 1.0, most);
  const uint16_t nearest = ToFloat16(static_cast<float>(std::clamp(rest / code, 0.0, kLargest)));
  // If `rest` is positive, but so small that the nearest float16 is 0, the scale is the least
  // positive float16 and the code is 0.
  WriteHalves(nearest == 0 && rest > 0.0 ? 1 : nearest, offset, to);
  auto* codes = reinterpret_cast<unsigned char*>(to) + 4;
  const auto each = static_cast<unsigned>(nearest == 0 ? 0.0 : code);
  std::memset(codes, static_cast<int>(bits == 8 ? each : each | each << 4),
              QuantisedLayout{dim, bits}.code_bytes());
  if (bits == 4 && dim % 2 != 0) codes[dim / 2] = static_cast<unsigned char>(each);
}

}  // namespace

void QuantiseNumbers(const float* numbers, int32_t dim, int32_t bits, char* to) {
  auto* codes = reinterpret_cast<unsigned char*>(to) + 4;
  const Range range = RangeOf(numbers, dim);
  if (!range.finite) {
    WriteHalves(kNanHalf, kNanHalf, to);
    std::memset(codes, 0, QuantisedLayout{dim, bits}.code_bytes());
    return;
  }
  const double most = bits == 8 ? 255.0 : 15.0;
  const uint16_t offset = HalfDown(static_cast<double>(range.least) + 0.0);  // never -0
  const double base = FromFloat16(offset);
  if (range.least == range.greatest) {
    QuantiseEqual(range.least - base, dim, bits, offset, to);
    return;
  }
  const uint16_t scale = HalfUp((range.greatest - base) / most + 0.0);  // never -0
  WriteHalves(scale, offset, to);
  const double step = scale == 0 ? 1.0 : FromFloat16(scale);
  const auto code = [&](int32_t j) {
    const double steps = __builtin_rint((static_cast<double>(numbers[j]) - base) / step);
    return static_cast<int>(std::clamp(steps, 0.0, most));
  };
  if (bits == 8) {
    for (int32_t j = 0; j < dim; ++j) codes[j] = static_cast<unsigned char>(code(j));
    return;
  }
  for (int32_t j = 0; j + 1 < dim; j += 2) {
    codes[j / 2] = static_cast<unsigned char>(code(j) | code(j + 1) << 4);
  }
  if (dim % 2 != 0) codes[dim / 2] = static_cast<unsigned char>(code(dim - 1));
}

}  // namespace msrec
