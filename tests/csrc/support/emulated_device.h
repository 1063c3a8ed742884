// SPDX-License-Identifier: Apache-2.0
//
// EmulatedDevice: runs the kernels' code on the host, thread after thread. Its memory is the
// host's: NaN at first, and watched at its ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda/kernel_device.h"

namespace msrec {

class EmulatedDevice : public KernelDevice {
 public:
  ~EmulatedDevice() override;

  std::string name() const override { return "emulated"; }
  std::string description() const override { return "kernels emulated on the host"; }
  void Multiply(const ProductShape& shape, const void* a, const void* b, float* c) override;

  void* Allocate(size_t bytes) override;
  // Throws std::logic_error where the memory is not of `Allocate`, or something wrote past its
  // ends.
  void Free(void* memory) override;
  void Clear(void* memory, size_t bytes) override;
  void Upload(const void* from, size_t bytes, void* to) override;
  void Download(const void* from, size_t bytes, void* to) override;

  // Of NaN anew each time.
  void* Scratch(size_t bytes) override;

  // Has so many allocations go through and those after them fail; none if it is negative.
  void FailAfter(int allocations) { allowed_ = allocations; }
  // Number of kernels started.
  int64_t started() const { return started_; }
  // Number of parts of memory that were allocated and not freed.
  size_t allocated() const { return sizes_.size(); }

 protected:
  void Start(const char* kernel, int64_t threads, const void* arguments) override;

 private:
  std::map<char*, size_t> sizes_;  // of what is allocated
  std::vector<double> scratch_;
  int64_t started_ = 0;
  int allowed_ = -1;
};

// Makes a device the current one of this thread for a scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(KernelDevice* device) { SetCurrentKernelDevice(device); }
  ~CurrentDevice() { SetCurrentKernelDevice(nullptr); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
};

}  // namespace msrec
