// SPDX-License-Identifier: Apache-2.0
//
// Matrix products by oneDNN. A product runs on the calling thread only. A caller that wants to use
// several threads must split the product. The library oneDNN is opened at run time; MindSpore
// contains a copy of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace msrec {

// Type of the factors of a product. Sums and results are float32.
enum class FactorType { kFloat32, kBFloat16 };

inline size_t SizeOf(FactorType type) { return type == FactorType::kFloat32 ? 4 : 2; }

// Computes C [m, n] = A [m, k] B [k, n], or C += A B. Matrices are row-major. Leading dimensions
// count elements, not bytes. A transposed A is stored as [k, m], and a transposed B as [n, k].
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transposed_a = false, transposed_b = false;
  bool accumulates = false;
  // True if B already has the layout that Product::Pack writes for this product. Pack reads a
  // float32 matrix with the leading dimension ldb.
  bool packed_b = false;
  FactorType type = FactorType::kFloat32;

  bool operator==(const ProductShape& o) const;
};

// Product: computes C = A B, or C += A B, for one shape. Several threads may call Run of one
// product at the same time.
class Product {
 public:
  virtual ~Product() = default;
  virtual void Run(const void* a, const void* b, float* c) const = 0;
  // Returns the size of a packed B in bytes; 0 if B is never packed for this shape.
  virtual size_t packed_bytes() const = 0;
  // Converts the float32 matrix b to the layout and type of B in this product.
  virtual void Pack(const float* b, void* packed) const = 0;
};

class OneDnn {
 public:
  // Opens the library at `path`, unless this process has already opened a library. Returns "", or
  // the reason why the library cannot be used.
  static std::string Load(const std::string& path);
  // Returns whether `Load` succeeded.
  static bool loaded();
  // Returns the version, such as "3.10.1".
  static std::string version();
  // Returns whether the processor multiplies bfloat16 faster than float32.
  static bool has_bfloat16();

  // Returns the product for a shape, from a cache of recent products. Throws std::runtime_error if
  // oneDNN does not support the product.
  static std::shared_ptr<const Product> Find(const ProductShape& shape);
};

// Returns a good leading dimension for products with rows of `width` elements. The leading
// dimension is a whole number of cache lines. Multiples of 1 KiB are avoided, because all rows
// would then use the same sets of the cache.
inline int64_t LeadingDimension(int64_t width) {
  const int64_t lines = (width + 15) / 16 * 16;
  return lines % 256 == 0 ? lines + 16 : lines;
}

}  // namespace msrec
