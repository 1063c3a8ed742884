// SPDX-License-Identifier: Apache-2.0
//
// The sources and the machine code of the kernels. The sources are embedded in this library. NVRTC
// compiles the sources once for each kind of GPU, and the machine code is cached in a folder of the
// user.
#pragma once

#include <map>
#include <string>

#include "cuda/driver_api.h"

namespace msrec {
namespace cuda {

// Returns a map from the names in #include lines to the sources of the kernels. The source
// "cuda/kernels.inl" includes all other sources.
const std::map<std::string, std::string>& KernelSources();

// Returns the machine code of all kernels for a compute capability such as 90. If `reads_cache` is
// true, the function first searches `cache_directory` for a file that contains the machine code and
// belongs to this user. If the file is missing or damaged, the function compiles the kernels and
// writes the machine code to the file. A failure to write the file is ignored. Throws
// std::runtime_error with the compiler's message if the compilation fails.
std::string CompileKernels(const Nvrtc& nvrtc, int compute_capability,
                           const std::string& cache_directory, bool reads_cache);

}  // namespace cuda
}  // namespace msrec
