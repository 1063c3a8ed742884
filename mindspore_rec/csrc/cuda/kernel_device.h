// SPDX-License-Identifier: Apache-2.0
//
// KernelDevice: a device whose loops are kernels of `kernels.inl`. The two devices are a GPU and,
// in the tests, an emulation on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dense/dense_device.h"

namespace msrec {

class KernelDevice : public DenseDevice {
 public:
  // Starts `threads` threads of a kernel, numbered from 0, all with the same arguments. Starts
  // nothing for 0 threads. At most 2^32 - 1 threads.
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

// The device whose loops this thread calls. `Elementwise` is a table of plain functions, so these
// functions find their device here. The current device is set from `Begin` to `End`.
KernelDevice& CurrentKernelDevice();
void SetCurrentKernelDevice(KernelDevice* device);

}  // namespace msrec
