// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for a GPU of NVIDIA on the CPU: one library that has the functions of the driver, of
// cuBLASLt and of NVRTC that `cuda/driver_api.h` lists. What is asked of a stream is done as late
// as the interface allows, when somebody waits for it: who forgets to wait reads what is not there
// yet. Memory of the device is NaN at first and guarded at both ends.
#pragma once

#include <cstddef>
#include <functional>

#include "cuda/driver_api.h"

#define STAND_IN extern "C" __attribute__((visibility("default")))
// Declares a function as the library calls it.
#define STAND_IN_DECLARE(name, arguments) STAND_IN Result name arguments;

namespace stand_in {

using Work = std::function<void()>;

constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidContext = 201, kInvalidHandle = 400;

// Ends the process: the library that is tested did what a GPU would not report.
[[noreturn]] void Die(const char* what);
// Has work done behind what the stream was asked for before.
void Later(msrec::cuda::Stream stream, Work work);
// Whether bytes lie within one block of the device's memory.
bool OnDevice(const void* from, size_t bytes);

}  // namespace stand_in
