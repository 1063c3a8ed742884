// SPDX-License-Identifier: Apache-2.0
//
// Functions of the CUDA driver, NVRTC and cuBLASLt that this library calls. The types and numbers
// in this file are part of the libraries' ABIs. The libraries are opened at run time, so the build
// needs no headers of the libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

namespace msrec {
namespace cuda {

// ---------------------------------------------------------------- driver

using Result = int;  // 0: success
using Device = int;
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Event = struct EventTag*;
using DevicePointer = unsigned long long;

constexpr Result kOutOfMemory = 2;
constexpr int kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76;  // attributes
constexpr unsigned kNonBlocking = 1;                                       // flag of a stream
constexpr unsigned kDisableTiming = 2;                                     // flag of an event

#define MSREC_CUDA_FUNCTIONS(X)                                                            \
  X(cuInit, (unsigned))                                                                    \
  X(cuDriverGetVersion, (int*))                                                            \
  X(cuGetErrorString, (Result, const char**))                                              \
  X(cuDeviceGetCount, (int*))                                                              \
  X(cuDeviceGet, (Device*, int))                                                           \
  X(cuDeviceGetName, (char*, int, Device))                                                 \
  X(cuDeviceGetAttribute, (int*, int, Device))                                             \
  X(cuDevicePrimaryCtxRetain, (Context*, Device))                                          \
  X(cuCtxSetCurrent, (Context))                                                            \
  X(cuStreamCreate, (Stream*, unsigned))                                                   \
  X(cuStreamSynchronize, (Stream))                                                         \
  X(cuEventCreate, (Event*, unsigned))                                                     \
  X(cuEventRecord, (Event, Stream))                                                        \
  X(cuEventSynchronize, (Event))                                                           \
  X(cuMemAlloc_v2, (DevicePointer*, size_t))                                               \
  X(cuMemFree_v2, (DevicePointer))                                                         \
  X(cuMemAllocHost_v2, (void**, size_t))                                                   \
  X(cuMemcpyHtoDAsync_v2, (DevicePointer, const void*, size_t, Stream))                    \
  X(cuMemcpyDtoHAsync_v2, (void*, DevicePointer, size_t, Stream))                          \
  X(cuMemsetD8Async, (DevicePointer, unsigned char, size_t, Stream))                       \
  X(cuModuleLoadData, (Module*, const void*))                                              \
  X(cuModuleGetFunction, (Function*, Module, const char*))                                 \
  X(cuLaunchKernel, (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     unsigned, Stream, void**, void**))

// ---------------------------------------------------------------- NVRTC

using NvrtcProgram = struct NvrtcProgramTag*;

#define MSREC_NVRTC_FUNCTIONS(X)                                                            \
  X(nvrtcVersion, (int*, int*))                                                             \
  X(nvrtcCreateProgram,                                                                     \
    (NvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*)) \
  X(nvrtcCompileProgram, (NvrtcProgram, int, const char* const*))                           \
  X(nvrtcDestroyProgram, (NvrtcProgram*))                                                   \
  X(nvrtcGetProgramLogSize, (NvrtcProgram, size_t*))                                        \
  X(nvrtcGetProgramLog, (NvrtcProgram, char*))                                              \
  X(nvrtcGetCUBINSize, (NvrtcProgram, size_t*))                                             \
  X(nvrtcGetCUBIN, (NvrtcProgram, char*))

// ---------------------------------------------------------------- cuBLASLt

using LtHandle = struct LtHandleTag*;
using LtDesc = struct LtDescTag*;
using LtLayout = struct LtLayoutTag*;
using LtPreference = struct LtPreferenceTag*;

struct LtAlgorithm {
  uint64_t data[8];
};
struct LtHeuristic {
  LtAlgorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

constexpr int kCompute32F = 68;                  // float32 without TF32
constexpr int kReal32F = 0, kRealBfloat16 = 14;  // types
constexpr int kTransposeA = 3, kTransposeB = 4;  // attributes of a matrix product
constexpr int kMostWorkspace = 1, kAlignmentA = 5, kAlignmentB = 6, kAlignmentC = 7,
              kAlignmentD = 8;  // attributes of a preference

#define MSREC_CUBLASLT_FUNCTIONS(X)                                                            \
  X(cublasLtCreate, (LtHandle*))                                                               \
  X(cublasLtMatmulDescCreate, (LtDesc*, int, int))                                             \
  X(cublasLtMatmulDescDestroy, (LtDesc))                                                       \
  X(cublasLtMatmulDescSetAttribute, (LtDesc, int, const void*, size_t))                        \
  X(cublasLtMatrixLayoutCreate, (LtLayout*, int, uint64_t, uint64_t, int64_t))                 \
  X(cublasLtMatrixLayoutDestroy, (LtLayout))                                                   \
  X(cublasLtMatmulPreferenceCreate, (LtPreference*))                                           \
  X(cublasLtMatmulPreferenceDestroy, (LtPreference))                                           \
  X(cublasLtMatmulPreferenceSetAttribute, (LtPreference, int, const void*, size_t))            \
  X(cublasLtMatmulAlgoGetHeuristic, (LtHandle, LtDesc, LtLayout, LtLayout, LtLayout, LtLayout, \
                                     LtPreference, int, LtHeuristic*, int*))                   \
  X(cublasLtMatmul,                                                                            \
    (LtHandle, LtDesc, const void*, const void*, LtLayout, const void*, LtLayout, const void*, \
     const void*, LtLayout, void*, LtLayout, const LtAlgorithm*, void*, size_t, Stream))

#define MSREC_CUDA_MEMBER(name, arguments) Result(*name) arguments = nullptr;

struct Driver {
  MSREC_CUDA_FUNCTIONS(MSREC_CUDA_MEMBER)
};
struct Nvrtc {
  MSREC_NVRTC_FUNCTIONS(MSREC_CUDA_MEMBER)
};
struct CublasLt {
  MSREC_CUBLASLT_FUNCTIONS(MSREC_CUDA_MEMBER)
  size_t (*cublasLtGetVersion)() = nullptr;
};
#undef MSREC_CUDA_MEMBER

// Each function below opens one library, once for the process. If the library cannot be used, the
// function throws std::runtime_error with the reason.
const Driver& OpenDriver();
const Nvrtc& OpenNvrtc(const char* path);
const CublasLt& OpenCublasLt(const char* path);

// Thrown if the device has no memory left. The exception's text names the failed request, because
// MindSpore shows only the text of an operator's exception.
class OutOfDeviceMemory : public std::bad_alloc {
 public:
  explicit OutOfDeviceMemory(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

// If `result` is an error, throws OutOfDeviceMemory if no memory is left, and std::runtime_error
// for other errors.
void Check(Result result, const char* function);
// Same as Check(), but for functions of NVRTC and cuBLASLt.
void CheckLibrary(Result result, const char* function);

}  // namespace cuda
}  // namespace msrec
