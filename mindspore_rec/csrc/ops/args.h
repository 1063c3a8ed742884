// SPDX-License-Identifier: Apache-2.0
//
// Args: the arguments that MindSpore passes to an operator. A separate function, in C++ or Python,
// infers the shape of each output, and MindSpore allocates the memory. If an inferred shape were
// wrong, the operator would write past the end of the memory. For safety, an operator either
// accesses memory through `Data`, which checks the number of elements, or first checks the shape
// itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace msrec {

using Shape = std::vector<int64_t>;

// MindSpore's name of a dtype.
template <typename T>
constexpr const char* kTypeName = nullptr;
template <>
inline constexpr const char* kTypeName<float> = "float32";
template <>
inline constexpr const char* kTypeName<int64_t> = "int64";
template <>
inline constexpr const char* kTypeName<int32_t> = "int32";
template <>
inline constexpr const char* kTypeName<uint8_t> = "uint8";
template <>
inline constexpr const char* kTypeName<bool> = "bool";

inline constexpr const char* kBfloat16 = "bfloat16";

// The inputs of an operator, followed by its outputs. `what` is the name of an argument for error
// messages.
struct Args {
  const char* op;
  int n;
  void** params;
  int* ndims;
  int64_t** shapes;
  const char** dtypes;

  // Throws unless there are `count` inputs and outputs together. An operator calls RequireCount
  // first.
  void RequireCount(int64_t count) const {
    if (n == count) return;
    throw std::invalid_argument(std::string(op) + " must have " + std::to_string(count) +
                                " inputs and outputs, got " + std::to_string(n));
  }
  void RequireAtLeast(int least) const {
    if (n >= least) return;
    throw std::invalid_argument(std::string(op) + " must have at least " + std::to_string(least) +
                                " inputs and outputs, got " + std::to_string(n));
  }
  size_t Size(int i) const {
    size_t size = 1;
    for (int d = 0; d < ndims[i]; ++d) size *= static_cast<size_t>(shapes[i][d]);
    return size;
  }
  bool IsType(int i, const char* dtype) const { return std::strcmp(dtypes[i], dtype) == 0; }

  // Returns the number of bytes per element.
  size_t Width(int i) const {
    const std::string type = dtypes[i];
    if (type == "float64" || type == "int64" || type == "uint64") return 8;
    if (type == "float32" || type == "int32" || type == "uint32") return 4;
    if (type == "float16" || type == "bfloat16" || type == "int16" || type == "uint16") return 2;
    if (type == "int8" || type == "uint8" || type == "bool") return 1;
    throw std::invalid_argument(std::string(op) + ": cannot read elements of " + type);
  }
  // Returns the elements of an argument. Throws unless the argument has dtype T and exactly `count`
  // elements (for `DataAtLeast`, at least `count` elements).
  template <typename T>
  T* Data(int i, const char* what, size_t count) const {
    if (!IsType(i, kTypeName<T>) || Size(i) != count) Refuse(i, what, "", count, kTypeName<T>);
    return static_cast<T*>(params[i]);
  }
  template <typename T>
  T* DataAtLeast(int i, const char* what, size_t count) const {
    if (!IsType(i, kTypeName<T>) || Size(i) < count) {
      Refuse(i, what, "at least ", count, kTypeName<T>);
    }
    return static_cast<T*>(params[i]);
  }
  // Does the same as `Data` for bfloat16 elements, and returns the bits of each element as a
  // uint16.
  uint16_t* Bfloat16Data(int i, const char* what, size_t count) const {
    if (!IsType(i, kBfloat16) || Size(i) != count) Refuse(i, what, "", count, kBfloat16);
    return static_cast<uint16_t*>(params[i]);
  }
  // Returns a reference to the element of argument i, which must have exactly one element.
  template <typename T>
  T& Number(int i, const char* what) const {
    return *Data<T>(i, what, 1);
  }

  // True if the shape of argument j begins with the shape of argument i.
  bool Leads(int i, int j) const {
    return ndims[i] <= ndims[j] && std::equal(shapes[i], shapes[i] + ndims[i], shapes[j]);
  }
  std::string ShapeText(int i) const {
    std::string text = "[";
    for (int d = 0; d < ndims[i]; ++d) {
      text += (d == 0 ? "" : ", ") + std::to_string(shapes[i][d]);
    }
    return text + "]";
  }

 private:
  [[noreturn]] void Refuse(int i, const char* what, const char* bound, size_t count,
                           const char* type) const {
    throw std::invalid_argument(std::string(op) + ": " + what + " must have " + bound +
                                std::to_string(count) + " elements of " + type + ", got " +
                                ShapeText(i) + " of " + dtypes[i]);
  }
};

// ---- for shape inference, which receives only shapes

// Returns dimension d of argument i. If argument i has no dimension d, returns 0, and the operator
// throws when it checks the argument.
inline int64_t Dimension(const int* ndims, int64_t* const* shapes, int64_t i, int d = 0) {
  return ndims[i] > d ? shapes[i][d] : 0;
}

inline Shape ShapeOf(const int* ndims, int64_t* const* shapes, int64_t i) {
  return {shapes[i], shapes[i] + ndims[i]};
}

// Returns the shape of `ids`, extended by one dimension of size dim. The argument `like` has the
// shape [dim].
inline Shape Rows(const int* ndims, int64_t* const* shapes, int ids, int like) {
  Shape shape = ShapeOf(ndims, shapes, ids);
  shape.push_back(Dimension(ndims, shapes, like));
  return shape;
}

}  // namespace msrec

// Marks a function as visible: MindSpore finds operators by name, and other symbols of the library
// are hidden.
#define MSREC_EXPORT extern "C" __attribute__((visibility("default")))

// Begins the definition of an operator. The body of the operator receives `args`.
#define MSREC_OP(name)                                                                           \
  static void name##Body(const msrec::Args& args);                                               \
  MSREC_EXPORT int name(int n, void** params, int* ndims, int64_t** shapes, const char** dtypes, \
                        void*, void*) {                                                          \
    name##Body({#name, n, params, ndims, shapes, dtypes});                                       \
    return 0;                                                                                    \
  }                                                                                              \
  static void name##Body(const msrec::Args& args)
