// SPDX-License-Identifier: Apache-2.0
//
// The sources of the kernels, which are part of this library, and their machine code. NVRTC
// compiles the machine code once for each kind of GPU, and a folder of the user caches it.
#pragma once

#include <map>
#include <string>

#include "cuda/driver_api.h"

namespace msrec {
namespace cuda {

// The sources by the names in their #include lines; "cuda/kernels.inl" includes all other sources.
const std::map<std::string, std::string>& KernelSources();

// Returns the machine code of all kernels for a compute capability such as 90. With `reads_cache`,
// the code comes from a file of this user in `cache_directory`, if there is such a file. If there
// is none, the kernels are compiled and the code is written to such a file. A folder that cannot be
// written is no error. Throws std::runtime_error with the compiler's message if the compilation
// fails.
std::string CompileKernels(const Nvrtc& nvrtc, int compute_capability,
                           const std::string& cache_directory, bool reads_cache);

}  // namespace cuda
}  // namespace msrec
