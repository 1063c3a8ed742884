// SPDX-License-Identifier: Apache-2.0
//
// MSREC_KERNEL(Name, Arguments) begins the body of a kernel for one thread. In the body, `i` is the
// thread's number and `a` contains the arguments. NVRTC compiles the body as a kernel. The host's
// compiler compiles the body as a function. Tests call this function by name to emulate a GPU.
#pragma once

#include "cuda/kernel_arguments.h"
#include "dense/inline.h"

#ifdef __CUDACC_RTC__

#define MSREC_KERNEL(Name, Arguments)                                              \
  __device__ void Name##Thread(int64_t i, const Arguments& a);                     \
  extern "C" __global__ void __launch_bounds__(256)                                \
      Name(const __grid_constant__ Arguments a, int64_t threads) {                 \
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; \
    if (i < threads) Name##Thread(i, a);                                           \
  }                                                                                \
  __device__ void Name##Thread(int64_t i, const Arguments& a)

#else

#include <map>
#include <string>

namespace msrec {
namespace kernels {

using KernelFunction = void (*)(int64_t i, const void* arguments);

// Returns the map from name to kernel, for the emulation on the host.
inline std::map<std::string, KernelFunction>& Kernels() {
  static std::map<std::string, KernelFunction> kernels;
  return kernels;
}

}  // namespace kernels
}  // namespace msrec

#define MSREC_KERNEL(Name, Arguments)                                                         \
  void Name##Thread(int64_t i, const Arguments& a);                                           \
  const bool Name##Known = Kernels()                                                          \
                               .emplace(#Name,                                                \
                                        [](int64_t i, const void* a) {                        \
                                          Name##Thread(i, *static_cast<const Arguments*>(a)); \
                                        })                                                    \
                               .second;                                                       \
  void Name##Thread(int64_t i, const Arguments& a)

#endif
