// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "cuda/kernel_module.h"
#include "util/thread_pool.h"

namespace msrec {
namespace cuda {
namespace {

constexpr unsigned kBlock = 256;  // threads per block, as in the kernels' launch bounds
constexpr int kLeastCapability = 80;

DevicePointer PointerOf(const void* memory) { return reinterpret_cast<DevicePointer>(memory); }

// Copies with several threads, because one core copies more slowly than the bus transfers data.
void CopyOnHost(const void* from, size_t bytes, void* to) {
  constexpr size_t kShare = size_t{256} << 10;
  if (bytes <= kShare) {
    std::memcpy(to, from, bytes);
    return;
  }
  ThreadPool::Global().ParallelFor(
      static_cast<int64_t>((bytes + kShare - 1) / kShare), [&](int64_t i) {
        const size_t first = static_cast<size_t>(i) * kShare;
        std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
                    std::min(kShare, bytes - first));
      });
}

struct GpuOfNumber {
  Device device = 0;
  std::string model;
  int capability = 0;  // for example 90 for compute capability 9.0
};

// Throws std::runtime_error if the GPU does not exist or is too old.
GpuOfNumber Find(const Driver& driver, int ordinal) {
  int count = 0;
  Check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (ordinal < 0 || ordinal >= count) {
    throw std::runtime_error("there is no cuda:" + std::to_string(ordinal) +
                             ": this process sees " + std::to_string(count) +
                             (count == 1 ? " GPU" : " GPUs") + " of NVIDIA");
  }
  GpuOfNumber gpu;
  Check(driver.cuDeviceGet(&gpu.device, ordinal), "cuDeviceGet");
  int major = 0, minor = 0;
  Check(driver.cuDeviceGetAttribute(&major, kComputeCapabilityMajor, gpu.device),
        "cuDeviceGetAttribute");
  Check(driver.cuDeviceGetAttribute(&minor, kComputeCapabilityMinor, gpu.device),
        "cuDeviceGetAttribute");
  char model[256] = {};
  Check(driver.cuDeviceGetName(model, sizeof(model) - 1, gpu.device), "cuDeviceGetName");
  gpu.model = model;
  gpu.capability = 10 * major + minor;
  if (gpu.capability < kLeastCapability) {
    throw std::runtime_error(gpu.model + " has compute capability " + std::to_string(major) + "." +
                             std::to_string(minor) + ", and programs need 8.0");
  }
  return gpu;
}

// Returns the versions of the driver and of NVRTC as text. Throws std::runtime_error if the driver
// is older than NVRTC.
std::string CheckVersions(const Driver& driver, const Nvrtc& nvrtc) {
  int of_driver = 0, major = 0, minor = 0;
  Check(driver.cuDriverGetVersion(&of_driver), "cuDriverGetVersion");  // for example 13010 for
                                                                       // version 13.1
  CheckLibrary(nvrtc.nvrtcVersion(&major, &minor), "nvrtcVersion");
  const std::string driver_text =
      std::to_string(of_driver / 1000) + "." + std::to_string(of_driver % 1000 / 10);
  if (of_driver / 1000 < major) {
    throw std::runtime_error("NVIDIA's driver is of CUDA " + driver_text +
                             ", and the libraries are of CUDA " + std::to_string(major) +
                             ": take a newer driver or older libraries");
  }
  return "NVRTC " + std::to_string(major) + "." + std::to_string(minor) + ", driver of CUDA " +
         driver_text;
}

}  // namespace

CudaDevice::CudaDevice(int ordinal, const Libraries& libraries, const std::string& cache_directory)
    : driver_(OpenDriver()), name_("cuda:" + std::to_string(ordinal)) {
  Open(ordinal, libraries, cache_directory);
}

// All requirements are checked before memory is allocated.
void CudaDevice::Open(int ordinal, const Libraries& libraries, const std::string& cache_directory) {
  Check(driver_.cuInit(0), "cuInit");
  const GpuOfNumber gpu = Find(driver_, ordinal);
  const Nvrtc& nvrtc = OpenNvrtc(libraries.nvrtc.c_str());
  const CublasLt& cublaslt = OpenCublasLt(libraries.cublaslt.c_str());
  const std::string versions = CheckVersions(driver_, nvrtc);
  std::string code = CompileKernels(nvrtc, gpu.capability, cache_directory, true);

  Check(driver_.cuDevicePrimaryCtxRetain(&context_, gpu.device), "cuDevicePrimaryCtxRetain");
  Check(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  if (driver_.cuModuleLoadData(&module_, code.data()) != 0) {
    code = CompileKernels(nvrtc, gpu.capability, cache_directory, false);  // the cached file is
                                                                           // damaged
    Check(driver_.cuModuleLoadData(&module_, code.data()), "cuModuleLoadData");
  }
  Check(driver_.cuStreamCreate(&stream_, kNonBlocking), "cuStreamCreate");
  for (Piece& piece : pieces_) {
    Check(driver_.cuMemAllocHost_v2(&piece.data, kPieceBytes), "cuMemAllocHost");
    Check(driver_.cuEventCreate(&piece.done, kDisableTiming), "cuEventCreate");
  }
  scratch_ = std::make_unique<DeviceMemory>(this);
  products_ = std::make_unique<Products>(cublaslt, Allocate(Products::kWorkspace));
  description_ = gpu.model + ", cuBLASLt " + products_->version() + ", " + versions;
}

void CudaDevice::Begin() {
  Check(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  KernelDevice::Begin();
}

void CudaDevice::Wait() { Check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

void* CudaDevice::Allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  Check(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
  DevicePointer memory = 0;
  const Result result = driver_.cuMemAlloc_v2(&memory, bytes);
  if (result == kOutOfMemory) {
    throw OutOfDeviceMemory(name_ + " has no memory left for another " +
                            std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB");
  }
  Check(result, "cuMemAlloc");
  return reinterpret_cast<void*>(memory);
}

// Errors are ignored, because destructors call Free even at the end of the process, when the driver
// may be gone.
void CudaDevice::Free(void* memory) {
  if (memory == nullptr) return;
  driver_.cuCtxSetCurrent(context_);
  driver_.cuStreamSynchronize(stream_);
  driver_.cuMemFree_v2(PointerOf(memory));
}

void CudaDevice::Clear(void* memory, size_t bytes) {
  if (bytes == 0) return;
  Check(driver_.cuMemsetD8Async(PointerOf(memory), 0, bytes, stream_), "cuMemsetD8Async");
}

CudaDevice::Piece* CudaDevice::NextPiece() {
  Piece* piece = &pieces_[next_piece_];
  next_piece_ = (next_piece_ + 1) % kPieces;
  return piece;
}

void CudaDevice::WaitFor(Piece* piece) {
  Check(driver_.cuEventSynchronize(piece->done), "cuEventSynchronize");
}

void CudaDevice::Upload(const void* from, size_t bytes, void* to) {
  for (size_t first = 0; first < bytes; first += kPieceBytes) {
    const size_t part = std::min(kPieceBytes, bytes - first);
    Piece* piece = NextPiece();
    WaitFor(piece);
    CopyOnHost(static_cast<const char*>(from) + first, part, piece->data);
    Check(driver_.cuMemcpyHtoDAsync_v2(PointerOf(to) + first, piece->data, part, stream_),
          "cuMemcpyHtoDAsync");
    Check(driver_.cuEventRecord(piece->done, stream_), "cuEventRecord");
  }
}

// Copies from device memory to host memory in pieces: while the device fills one piece, the host
// copies the previous piece.
void CudaDevice::Download(const void* from, size_t bytes, void* to) {
  struct Part {
    Piece* piece;
    size_t first, bytes;
  };
  Part before{nullptr, 0, 0};
  const auto take = [&](const Part& part) {
    WaitFor(part.piece);
    CopyOnHost(part.piece->data, part.bytes, static_cast<char*>(to) + part.first);
  };
  for (size_t first = 0; first < bytes; first += kPieceBytes) {
    const Part part{NextPiece(), first, std::min(kPieceBytes, bytes - first)};
    WaitFor(part.piece);
    Check(driver_.cuMemcpyDtoHAsync_v2(part.piece->data, PointerOf(from) + first, part.bytes,
                                       stream_),
          "cuMemcpyDtoHAsync");
    Check(driver_.cuEventRecord(part.piece->done, stream_), "cuEventRecord");
    if (before.piece != nullptr) take(before);
    before = part;
  }
  if (before.piece != nullptr) take(before);
}

void* CudaDevice::Scratch(size_t bytes) { return scratch_->AtLeast(bytes); }

void CudaDevice::Multiply(const ProductShape& shape, const void* a, const void* b, float* c) {
  products_->Multiply(shape, a, b, c, stream_);
}

void CudaDevice::Start(const char* kernel, int64_t threads, const void* arguments) {
  if (threads > std::numeric_limits<uint32_t>::max()) {
    throw std::invalid_argument(std::string("kernel ") + kernel + " cannot take " +
                                std::to_string(threads) + " threads: the batch is too large");
  }
  Function& function = functions_[kernel];
  if (function == nullptr) {
    Check(driver_.cuModuleGetFunction(&function, module_, kernel), kernel);
  }
  void* parameters[] = {const_cast<void*>(arguments), &threads};
  const auto blocks = static_cast<unsigned>((threads + kBlock - 1) / kBlock);
  Check(
      driver_.cuLaunchKernel(function, blocks, 1, 1, kBlock, 1, 1, 0, stream_, parameters, nullptr),
      kernel);
}

}  // namespace cuda
}  // namespace msrec
