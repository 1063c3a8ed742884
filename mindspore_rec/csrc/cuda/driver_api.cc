// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver_api.h"

#include <dlfcn.h>

#include <mutex>
#include <stdexcept>
#include <string>

namespace msrec {
namespace cuda {
namespace {

std::mutex open_mutex;
Driver the_driver;
Nvrtc the_nvrtc;
CublasLt the_cublaslt;

void* OpenLibrary(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return library;
}

template <typename Function>
void Look(void* library, const char* path, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  if (*function == nullptr) {
    throw std::runtime_error(std::string(path) + " has no function " + name + ": it is too old");
  }
}

#define MSREC_CUDA_LOOK(name, arguments) Look(library, path, #name, &functions.name);

}  // namespace

const Driver& OpenDriver() {
  std::lock_guard<std::mutex> lock(open_mutex);
  if (the_driver.cuInit != nullptr) return the_driver;
  const char* path = "libcuda.so.1";
  void* library = OpenLibrary(path);
  Driver functions;
  MSREC_CUDA_FUNCTIONS(MSREC_CUDA_LOOK)
  return the_driver = functions;
}

const Nvrtc& OpenNvrtc(const char* path) {
  std::lock_guard<std::mutex> lock(open_mutex);
  if (the_nvrtc.nvrtcVersion != nullptr) return the_nvrtc;
  void* library = OpenLibrary(path);
  Nvrtc functions;
  MSREC_NVRTC_FUNCTIONS(MSREC_CUDA_LOOK)
  return the_nvrtc = functions;
}

const CublasLt& OpenCublasLt(const char* path) {
  std::lock_guard<std::mutex> lock(open_mutex);
  if (the_cublaslt.cublasLtCreate != nullptr) return the_cublaslt;
  void* library = OpenLibrary(path);
  CublasLt functions;
  MSREC_CUBLASLT_FUNCTIONS(MSREC_CUDA_LOOK)
  Look(library, path, "cublasLtGetVersion", &functions.cublasLtGetVersion);
  return the_cublaslt = functions;
}

#undef MSREC_CUDA_LOOK

void Check(Result result, const char* function) {
  if (result == 0) return;
  if (result == kOutOfMemory) {
    throw OutOfDeviceMemory(std::string(function) + " failed: there is no memory left");
  }
  const char* text = nullptr;
  if (the_driver.cuGetErrorString != nullptr) the_driver.cuGetErrorString(result, &text);
  throw std::runtime_error(std::string(function) + " failed: " +
                           (text != nullptr ? text : "error " + std::to_string(result)));
}

void CheckLibrary(Result result, const char* function) {
  if (result == 0) return;
  throw std::runtime_error(std::string(function) + " failed with status " + std::to_string(result));
}

}  // namespace cuda
}  // namespace msrec
