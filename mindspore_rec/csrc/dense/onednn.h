// SPDX-License-Identifier: Apache-2.0
//
// Matrix products by oneDNN. The calling thread computes a product alone; a caller that wants
// several threads splits the work. The library is opened at run time (MindSpore ships a copy).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace msrec {

// Type of the factors of a product. Sums and results are float32.
enum class FactorType { kFloat32, kBFloat16 };

inline size_t SizeOf(FactorType type) { return type == FactorType::kFloat32 ? 4 : 2; }

// C [m, n] = A [m, k] B [k, n], or C += A B. Matrices are row-major, each with a leading dimension
// in elements. A transposed factor is stored as [k, m] or [n, k].
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transposed_a = false, transposed_b = false;
  bool accumulates = false;
  // True if B is in the layout that Product::Pack writes for this product. Before the packing, B
  // was float32 with the leading dimension ldb.
  bool packed_b = false;
  FactorType type = FactorType::kFloat32;

  bool operator==(const ProductShape& o) const;
};

// Product: C = A B for one shape. Several threads may run one product at once.
class Product {
 public:
  virtual ~Product() = default;
  virtual void Run(const void* a, const void* b, float* c) const = 0;
  // Bytes of a packed B; 0 if the shape has no packed B.
  virtual size_t packed_bytes() const = 0;
  // Writes the float32 matrix b in the layout and type of this product.
  virtual void Pack(const float* b, void* packed) const = 0;
};

class OneDnn {
 public:
  // Opens the library at `path`, once for the process. Returns "" or the reason why the library
  // cannot be used.
  static std::string Load(const std::string& path);
  // Returns whether `Load` succeeded.
  static bool loaded();
  // Returns the version, such as "3.10.1".
  static std::string version();
  // Returns whether the processor multiplies bfloat16 faster than float32.
  static bool has_bfloat16();

  // Returns the product of a shape, from a cache of recent products. Throws std::runtime_error if
  // oneDNN has no such product.
  static std::shared_ptr<const Product> Find(const ProductShape& shape);
};

// Returns a leading dimension for rows of `width` elements that suits products. The dimension is a
// whole number of cache lines. A multiple of 1 KiB is avoided, because all rows would then fall on
// the same sets of the cache.
inline int64_t LeadingDimension(int64_t width) {
  const int64_t lines = (width + 15) / 16 * 16;
  return lines % 256 == 0 ? lines + 16 : lines;
}

}  // namespace msrec
