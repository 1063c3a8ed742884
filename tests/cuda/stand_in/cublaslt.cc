// SPDX-License-Identifier: Apache-2.0
//
// cuBLASLt: products of column-major matrices, summed in double.
#include <cstdint>
#include <cstring>

#include "stand_in.h"

namespace msrec {
namespace cuda {

struct LtHandleTag {};
struct LtDescTag {
  int32_t transposed_a = 0, transposed_b = 0;
};
struct LtLayoutTag {
  int type;
  int64_t rows, columns, ld;
};
struct LtPreferenceTag {
  uint64_t workspace = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of A, B, C, D
};

}  // namespace cuda
}  // namespace msrec

namespace stand_in {
namespace {

using namespace msrec::cuda;

constexpr int kLtInvalidValue = 7, kLtNotSupported = 15;
constexpr uint64_t kMagic = 0x57a4d1;  // of an algorithm of ours
constexpr uint64_t kWorkspace = 4096;

struct Matrix {
  const void* data;
  LtLayoutTag layout;
  bool transposed;

  size_t ElementBytes() const { return layout.type == kReal32F ? 4 : 2; }
  bool IsThere() const {
    const int64_t elements = (layout.columns - 1) * layout.ld + layout.rows;
    return data != nullptr && OnDevice(data, static_cast<size_t>(elements) * ElementBytes());
  }
  int64_t Rows() const { return transposed ? layout.columns : layout.rows; }
  int64_t Columns() const { return transposed ? layout.rows : layout.columns; }
  double At(int64_t row, int64_t column) const {
    const int64_t at = transposed ? column + row * layout.ld : row + column * layout.ld;
    if (layout.type == kReal32F) return static_cast<const float*>(data)[at];
    const auto bits = uint32_t{static_cast<const uint16_t*>(data)[at]} << 16;
    float number;
    std::memcpy(&number, &bits, sizeof(number));
    return number;
  }
};

bool Fit(const Matrix& a, const Matrix& b, const LtLayoutTag& c) {
  return a.layout.type == b.layout.type && c.type == kReal32F && a.Rows() == c.rows &&
         b.Columns() == c.columns && a.Columns() == b.Rows();
}

bool IsAligned(const void* data, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

}  // namespace
}  // namespace stand_in

namespace msrec {
namespace cuda {

using namespace stand_in;

MSREC_CUBLASLT_FUNCTIONS(STAND_IN_DECLARE)

STAND_IN size_t cublasLtGetVersion() { return 130000; }

Result cublasLtCreate(LtHandle* handle) {
  *handle = new LtHandleTag;
  return kSuccess;
}

Result cublasLtMatmulDescCreate(LtDesc* desc, int compute, int scale) {
  if (compute != kCompute32F || scale != kReal32F) return kLtInvalidValue;
  *desc = new LtDescTag;
  return kSuccess;
}

Result cublasLtMatmulDescDestroy(LtDesc desc) {
  delete desc;
  return kSuccess;
}

Result cublasLtMatmulDescSetAttribute(LtDesc desc, int attribute, const void* value, size_t bytes) {
  if (bytes != sizeof(int32_t)) return kLtInvalidValue;
  if (attribute != kTransposeA && attribute != kTransposeB) return kLtInvalidValue;
  std::memcpy(attribute == kTransposeA ? &desc->transposed_a : &desc->transposed_b, value, bytes);
  return kSuccess;
}

Result cublasLtMatrixLayoutCreate(LtLayout* layout, int type, uint64_t rows, uint64_t columns,
                                  int64_t ld) {
  const auto height = static_cast<int64_t>(rows), width = static_cast<int64_t>(columns);
  if (type != kReal32F && type != kRealBfloat16) return kLtInvalidValue;
  if (height <= 0 || width <= 0 || ld < height) return kLtInvalidValue;
  *layout = new LtLayoutTag{type, height, width, ld};
  return kSuccess;
}

Result cublasLtMatrixLayoutDestroy(LtLayout layout) {
  delete layout;
  return kSuccess;
}

Result cublasLtMatmulPreferenceCreate(LtPreference* preference) {
  *preference = new LtPreferenceTag;
  return kSuccess;
}

Result cublasLtMatmulPreferenceDestroy(LtPreference preference) {
  delete preference;
  return kSuccess;
}

Result cublasLtMatmulPreferenceSetAttribute(LtPreference preference, int attribute,
                                            const void* value, size_t bytes) {
  if (attribute == kMostWorkspace && bytes == sizeof(uint64_t)) {
    std::memcpy(&preference->workspace, value, bytes);
    return kSuccess;
  }
  if (attribute < kAlignmentA || attribute > kAlignmentD || bytes != sizeof(uint32_t)) {
    return kLtInvalidValue;
  }
  std::memcpy(&preference->alignments[attribute - kAlignmentA], value, bytes);
  return kSuccess;
}

// One algorithm, which needs the alignments that it was asked for.
Result cublasLtMatmulAlgoGetHeuristic(LtHandle handle, LtDesc desc, LtLayout a, LtLayout b,
                                      LtLayout c, LtLayout d, LtPreference preference, int most,
                                      LtHeuristic* found, int* count) {
  const bool fits =
      Fit({nullptr, *a, desc->transposed_a != 0}, {nullptr, *b, desc->transposed_b != 0}, *c);
  if (handle == nullptr || !fits || most < 1) return kLtInvalidValue;
  if (std::memcmp(c, d, sizeof(*c)) != 0) return kLtInvalidValue;
  if (preference->workspace < kWorkspace) return kLtNotSupported;
  *found = {};
  found->algorithm.data[0] = kMagic;
  for (int i = 0; i < 4; ++i) found->algorithm.data[i + 1] = preference->alignments[i];
  found->workspace = kWorkspace;
  *count = 1;
  return kSuccess;
}

Result cublasLtMatmul(LtHandle handle, LtDesc desc, const void* alpha_at, const void* a_at,
                      LtLayout a_layout, const void* b_at, LtLayout b_layout, const void* beta_at,
                      const void* c_at, LtLayout c_layout, void* d_at, LtLayout d_layout,
                      const LtAlgorithm* algorithm, void* workspace, size_t bytes, Stream stream) {
  const Matrix a{a_at, *a_layout, desc->transposed_a != 0};
  const Matrix b{b_at, *b_layout, desc->transposed_b != 0};
  const Matrix c{c_at, *c_layout, false};
  if (handle == nullptr || !Fit(a, b, c.layout) || algorithm->data[0] != kMagic) {
    return kLtInvalidValue;
  }
  if (c_at != d_at || std::memcmp(c_layout, d_layout, sizeof(*c_layout)) != 0) {
    return kLtNotSupported;  // only in place
  }
  if (!a.IsThere() || !b.IsThere() || !c.IsThere()) return kLtInvalidValue;
  const uint64_t* alignments = algorithm->data + 1;
  if (!IsAligned(a_at, alignments[0]) || !IsAligned(b_at, alignments[1]) ||
      !IsAligned(c_at, alignments[2]) || !IsAligned(d_at, alignments[3])) {
    return kLtInvalidValue;
  }
  if (bytes < kWorkspace || !OnDevice(workspace, bytes) || !IsAligned(workspace, 256)) {
    return kLtInvalidValue;
  }
  float alpha, beta;
  std::memcpy(&alpha, alpha_at, sizeof(alpha));
  std::memcpy(&beta, beta_at, sizeof(beta));
  Later(stream, [=] {
    std::memset(workspace, 0xff, kWorkspace);  // of such bytes a float is NaN
    auto* d = static_cast<float*>(d_at);
    for (int64_t j = 0; j < c.layout.columns; ++j) {
      for (int64_t i = 0; i < c.layout.rows; ++i) {
        double sum = 0.0;
        for (int64_t p = 0; p < a.Columns(); ++p) sum += a.At(i, p) * b.At(p, j);
        float* at = d + i + j * c.layout.ld;
        *at = static_cast<float>(alpha * sum + (beta == 0.0f ? 0.0 : beta * double{*at}));
      }
    }
  });
  return kSuccess;
}

}  // namespace cuda
}  // namespace msrec
