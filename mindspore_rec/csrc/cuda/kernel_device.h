// SPDX-License-Identifier: Apache-2.0
//
// KernelDevice: a device whose loops are kernels of `kernels.inl`. A KernelDevice is a GPU or, in
// the tests, an emulation on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dense/dense_device.h"

namespace msrec {

class KernelDevice : public DenseDevice {
 public:
  // Starts `threads` threads of a kernel, numbered from 0, all with the same arguments. Does
  // nothing if `threads` is 0. `threads` must be at most 2^32 - 1.
  template <typename Arguments>
  void Launch(const char* kernel, int64_t threads, const Arguments& arguments) {
    if (threads > 0) Start(kernel, threads, &arguments);
  }

  // Returns scratch memory for the kernels of one loop. The next loop reuses the scratch memory.
  virtual void* Scratch(size_t bytes) = 0;

  const Elementwise& loops() const final;
  void Begin() override;
  void End() override;

 protected:
  virtual void Start(const char* kernel, int64_t threads, const void* arguments) = 0;
};

// Returns the current device of this thread. The functions in `Elementwise` have no device
// argument, so these functions call CurrentKernelDevice. `Begin` sets the current device, and `End`
// clears the current device.
KernelDevice& CurrentKernelDevice();
void SetCurrentKernelDevice(KernelDevice* device);

}  // namespace msrec
