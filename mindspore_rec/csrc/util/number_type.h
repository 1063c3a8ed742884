// SPDX-License-Identifier: Apache-2.0
//
// NumberType: the type in which the elements of a row are stored. All computations are in float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace msrec {

enum class NumberType : int32_t { kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2 };

// Bytes of a number. BytesOf is always inlined, because the kernels of every instruction set use
// BytesOf.
__attribute__((always_inline)) inline constexpr size_t BytesOf(NumberType type) {
  return type == NumberType::kFloat32 ? 4 : 2;
}

// "float32", "bfloat16", "float16".
const char* NameOf(NumberType type);
// If `name` is not a name of a NumberType, throws std::invalid_argument; the message contains
// `argument`.
NumberType ParseNumberType(const std::string& name, const char* argument);

// Write n float32 numbers as numbers of type `type`, rounded to the nearest, ties to even.
void Narrow(NumberType type, const float* from, size_t n, void* to);
// Write n numbers of type `type` as float32 numbers, without rounding.
void Widen(NumberType type, const void* from, size_t n, float* to);

}  // namespace msrec
