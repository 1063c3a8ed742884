// SPDX-License-Identifier: Apache-2.0
//
// CudaDevice: an NVIDIA GPU of compute capability 8.0 or later.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "cuda/driver_api.h"
#include "cuda/kernel_device.h"
#include "cuda/products.h"

namespace msrec {
namespace cuda {

struct Libraries {
  std::string nvrtc;  // paths
  std::string cublaslt;
};

class CudaDevice : public KernelDevice {
 public:
  // Opens GPU number `ordinal` and compiles the kernels. Throws std::runtime_error with the reason
  // if the GPU cannot be used.
  CudaDevice(int ordinal, const Libraries& libraries, const std::string& cache_directory);

  std::string name() const override { return name_; }
  std::string description() const override { return description_; }
  void Multiply(const ProductShape& shape, const void* a, const void* b, float* c) override;
  void* Allocate(size_t bytes) override;
  void Free(void* memory) override;
  void Clear(void* memory, size_t bytes) override;
  void Upload(const void* from, size_t bytes, void* to) override;
  void Download(const void* from, size_t bytes, void* to) override;
  void Begin() override;
  void* Scratch(size_t bytes) override;

 protected:
  void Start(const char* kernel, int64_t threads, const void* arguments) override;

 private:
  // A piece of page-locked host memory for copies, and an event that marks the end of the last copy
  // to or from this piece.
  struct Piece {
    void* data = nullptr;
    Event done = nullptr;
  };
  static constexpr size_t kPieceBytes = size_t{4} << 20;
  static constexpr size_t kPieces = 4;

  void Open(int ordinal, const Libraries& libraries, const std::string& cache_directory);
  Piece* NextPiece();
  void WaitFor(Piece* piece);
  void Wait();

  const Driver& driver_;
  const std::string name_;
  std::string description_;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  Module module_ = nullptr;
  std::unordered_map<std::string, Function> functions_;
  std::unique_ptr<Products> products_;
  Piece pieces_[kPieces];
  size_t next_piece_ = 0;
  std::unique_ptr<DeviceMemory> scratch_;
};

}  // namespace cuda
}  // namespace msrec
