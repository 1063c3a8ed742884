// SPDX-License-Identifier: Apache-2.0
#include "util/number_type.h"

#include <stdexcept>

#include "util/bfloat16.h"
#include "util/bytes.h"
#include "util/float16.h"

namespace msrec {

const char* NameOf(NumberType type) {
  switch (type) {
    case NumberType::kBfloat16:
      return "bfloat16";
    case NumberType::kFloat16:
      return "float16";
    default:
      return "float32";
  }
}

NumberType ParseNumberType(const std::string& name, const char* argument) {
  for (const NumberType type :
       {NumberType::kFloat32, NumberType::kBfloat16, NumberType::kFloat16}) {
    if (name == NameOf(type)) return type;
  }
  throw std::invalid_argument(std::string(argument) +
                              " must be float32, bfloat16 or float16, got '" + name + "'");
}

void Narrow(NumberType type, const float* from, size_t n, void* to) {
  auto* narrow = static_cast<uint16_t*>(to);
  switch (type) {
    case NumberType::kBfloat16:
      for (size_t i = 0; i < n; ++i) narrow[i] = ToBfloat16(from[i]);
      return;
    case NumberType::kFloat16:
      for (size_t i = 0; i < n; ++i) narrow[i] = ToFloat16(from[i]);
      return;
    default:
      CopyBytes(to, from, n * sizeof(float));
  }
}

void Widen(NumberType type, const void* from, size_t n, float* to) {
  const auto* narrow = static_cast<const uint16_t*>(from);
  switch (type) {
    case NumberType::kBfloat16:
      for (size_t i = 0; i < n; ++i) to[i] = FromBfloat16(narrow[i]);
      return;
    case NumberType::kFloat16:
      for (size_t i = 0; i < n; ++i) to[i] = FromFloat16(narrow[i]);
      return;
    default:
      CopyBytes(to, from, n * sizeof(float));
  }
}

}  // namespace msrec
