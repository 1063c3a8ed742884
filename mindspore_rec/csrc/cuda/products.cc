// SPDX-License-Identifier: Apache-2.0
#include "cuda/products.h"

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <vector>

namespace msrec {
namespace cuda {
namespace {

constexpr size_t kMostPlans = 4096;
constexpr int kMostAlgorithms = 8;
constexpr int kSuccess = 0;

// Returns the alignment of an address: the greatest power of two, at most 256, that divides the
// address.
uint32_t AlignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 256;
  return static_cast<uint32_t>(address & (~address + 1));
}

}  // namespace

// The matrices of cuBLASLt are column-major and the matrices of this library are row-major, so
// cuBLASLt computes the transposes: C^T = B^T A^T.
struct Products::Plan {
  explicit Plan(const CublasLt& opened) : library(opened) {}
  ~Plan() {
    if (product != nullptr) library.cublasLtMatmulDescDestroy(product);
    for (LtLayout layout : {a, b, c}) {
      if (layout != nullptr) library.cublasLtMatrixLayoutDestroy(layout);
    }
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const CublasLt& library;
  LtDesc product = nullptr;
  LtLayout a = nullptr, b = nullptr, c = nullptr;
  LtAlgorithm algorithm{};
  size_t workspace = 0;
};

bool Products::Key::operator<(const Key& other) const {
  const auto all = [](const Key& k) {
    const ProductShape& s = k.shape;
    return std::make_tuple(s.m, s.n, s.k, s.lda, s.ldb, s.ldc, s.transposed_a, s.transposed_b,
                           s.accumulates, static_cast<int>(s.type), k.alignments[0],
                           k.alignments[1], k.alignments[2]);
  };
  return all(*this) < all(other);
}

Products::Products(const CublasLt& library, void* workspace)
    : library_(library), workspace_(workspace) {
  CheckLibrary(library.cublasLtCreate(&handle_), "cublasLtCreate");
}

std::string Products::version() const {
  const size_t version = library_.cublasLtGetVersion();  // for example 130100 for version 13.1.0
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100);
}

std::shared_ptr<const Products::Plan> Products::MakePlan(const Key& key) const {
  const ProductShape& s = key.shape;
  auto plan = std::make_shared<Plan>(library_);
  const int type = s.type == FactorType::kFloat32 ? kReal32F : kRealBfloat16;
  const auto layout = [&](LtLayout* made, int of, bool transposed, int64_t rows, int64_t columns,
                          int64_t ld) {
    if (transposed) std::swap(rows, columns);
    CheckLibrary(library_.cublasLtMatrixLayoutCreate(made, of, static_cast<uint64_t>(columns),
                                                     static_cast<uint64_t>(rows), ld),
                 "cublasLtMatrixLayoutCreate");
  };
  layout(&plan->a, type, s.transposed_a, s.m, s.k, s.lda);
  layout(&plan->b, type, s.transposed_b, s.k, s.n, s.ldb);
  layout(&plan->c, kReal32F, false, s.m, s.n, s.ldc);
  CheckLibrary(library_.cublasLtMatmulDescCreate(&plan->product, kCompute32F, kReal32F),
               "cublasLtMatmulDescCreate");
  const auto transpose = [&](int attribute, bool transposed) {
    const int32_t value = transposed ? 1 : 0;
    CheckLibrary(
        library_.cublasLtMatmulDescSetAttribute(plan->product, attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
  };
  transpose(kTransposeA, s.transposed_b);
  transpose(kTransposeB, s.transposed_a);

  LtPreference preference = nullptr;
  CheckLibrary(library_.cublasLtMatmulPreferenceCreate(&preference),
               "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<LtPreferenceTag, Result (*)(LtPreference)> owned(
      preference, library_.cublasLtMatmulPreferenceDestroy);
  const auto prefer = [&](int attribute, auto value) {
    CheckLibrary(
        library_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(kMostWorkspace, static_cast<uint64_t>(kWorkspace));
  prefer(kAlignmentA, key.alignments[1]);
  prefer(kAlignmentB, key.alignments[0]);
  prefer(kAlignmentC, key.alignments[2]);
  prefer(kAlignmentD, key.alignments[2]);
  LtHeuristic found[kMostAlgorithms];
  int count = 0;
  CheckLibrary(
      library_.cublasLtMatmulAlgoGetHeuristic(handle_, plan->product, plan->b, plan->a, plan->c,
                                              plan->c, preference, kMostAlgorithms, found, &count),
      "cublasLtMatmulAlgoGetHeuristic");
  const LtHeuristic* end = found + count;
  const LtHeuristic* best = std::find_if(static_cast<const LtHeuristic*>(found), end,
                                         [](const LtHeuristic& h) { return h.state == kSuccess; });
  if (best == end) {
    throw std::runtime_error("cuBLASLt has no product of " + std::to_string(s.m) + " x " +
                             std::to_string(s.k) + " x " + std::to_string(s.n));
  }
  plan->algorithm = best->algorithm;
  plan->workspace = best->workspace;
  return plan;
}

void Products::Multiply(const ProductShape& shape, const void* a, const void* b, float* c,
                        Stream stream) {
  const Key key{shape, {AlignmentOf(a), AlignmentOf(b), AlignmentOf(c)}};
  auto at = plans_.find(key);
  if (at == plans_.end()) {
    if (plans_.size() >= kMostPlans) plans_.clear();
    at = plans_.emplace(key, MakePlan(key)).first;
  }
  const Plan& plan = *at->second;
  const float alpha = 1.0f;
  const float beta = shape.accumulates ? 1.0f : 0.0f;
  CheckLibrary(
      library_.cublasLtMatmul(handle_, plan.product, &alpha, b, plan.b, a, plan.a, &beta, c, plan.c,
                              c, plan.c, &plan.algorithm, workspace_, plan.workspace, stream),
      "cublasLtMatmul");
}

}  // namespace cuda
}  // namespace msrec
