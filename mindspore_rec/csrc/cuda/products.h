// SPDX-License-Identifier: Apache-2.0
//
// Matrix products by cuBLASLt. All products of one shape, with the same alignment of the matrices,
// use the same algorithm in each run. The algorithm adds numbers in a fixed order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "cuda/driver_api.h"
#include "dense/onednn.h"

namespace msrec {
namespace cuda {

class Products {
 public:
  static constexpr size_t kWorkspace = size_t{32} << 20;

  // `workspace` has kWorkspace bytes of device memory.
  Products(const CublasLt& library, void* workspace);

  void Multiply(const ProductShape& shape, const void* a, const void* b, float* c, Stream stream);
  std::string version() const;

 private:
  struct Plan;
  struct Key {
    ProductShape shape;
    uint32_t alignments[3];
    bool operator<(const Key& other) const;
  };

  std::shared_ptr<const Plan> MakePlan(const Key& key) const;

  const CublasLt& library_;
  void* const workspace_;
  LtHandle handle_ = nullptr;
  std::map<Key, std::shared_ptr<const Plan>> plans_;
};

}  // namespace cuda
}  // namespace msrec
