// SPDX-License-Identifier: Apache-2.0
//
// The kernels' sources, which are part of this library, and their machine code, which NVRTC makes
// once for each kind of GPU and a folder of the user keeps.
#pragma once

#include <map>
#include <string>

#include "cuda/driver_api.h"

namespace msrec {
namespace cuda {

// The sources by the names under which they include each other; "cuda/kernels.inl" includes all.
const std::map<std::string, std::string>& KernelSources();

// Returns the machine code of all kernels for a compute capability such as 90. With `reads_cache`
// it is read from `cache_directory` if that has it, in a file of this user; otherwise it is
// compiled and written there. A folder that cannot be written is no error. Throws
// std::runtime_error with the compiler's words if it fails.
std::string CompileKernels(const Nvrtc& nvrtc, int compute_capability,
                           const std::string& cache_directory, bool reads_cache);

}  // namespace cuda
}  // namespace msrec
