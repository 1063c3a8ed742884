// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/kernel.h"
#include "stand_in.h"

// Kernels by name, with the size of their arguments: a launch copies them.
namespace stand_in {
struct Kernel {
  msrec::kernels::KernelFunction run;
  size_t arguments;
};
std::map<std::string, Kernel>& Kernels() {
  static auto* kernels = new std::map<std::string, Kernel>;
  return *kernels;
}
}  // namespace stand_in

#undef MSREC_KERNEL
#define MSREC_KERNEL(Name, Arguments)                                                              \
  void Name##Thread(int64_t i, const Arguments& a);                                                \
  const bool Name##Known =                                                                         \
      ::stand_in::Kernels()                                                                        \
          .emplace(#Name, ::stand_in::Kernel{[](int64_t i, const void* a) {                        \
                                               Name##Thread(i, *static_cast<const Arguments*>(a)); \
                                             },                                                    \
                                             sizeof(Arguments)})                                   \
          .second;                                                                                 \
  void Name##Thread(int64_t i, const Arguments& a)

#include "cuda/kernels.inl"

struct msrec::cuda::ContextTag {};
struct msrec::cuda::ModuleTag {};
struct msrec::cuda::FunctionTag {
  stand_in::Kernel kernel;
  int64_t launches = 0;
};
struct msrec::cuda::StreamTag {
  std::deque<stand_in::Work> waiting;
  int64_t done = 0;
};
struct msrec::cuda::EventTag {
  msrec::cuda::Stream stream = nullptr;
  int64_t behind = 0;  // so many works of the stream
};

namespace stand_in {
namespace {

using namespace msrec::cuda;

constexpr size_t kGuard = 256;  // bytes at both ends
constexpr int kPoison = 0xff;   // of such bytes a float is NaN
constexpr unsigned kBlock = 256;

struct State {
  std::mutex mutex;
  std::map<char*, size_t> device, pinned;  // blocks and their bytes
  size_t allocated = 0;
  ContextTag context;
  ModuleTag module;
  std::map<std::string, FunctionTag> functions;
};
State& The() {
  static auto* state = new State;  // never destroyed: memory is freed while the process ends
  return *state;
}
thread_local Context current = nullptr;

using Lock = std::lock_guard<std::mutex>;

bool Within(const std::map<char*, size_t>& blocks, const void* from, size_t bytes) {
  auto* at = static_cast<char*>(const_cast<void*>(from));
  auto block = blocks.upper_bound(at);
  if (block == blocks.begin()) return false;
  --block;
  return at + bytes <= block->first + block->second;
}

size_t WholeBytes(size_t bytes) { return (bytes + kGuard - 1) / kGuard * kGuard; }

bool IsPoison(const char* from, const char* end) {
  return std::all_of(from, end, [](char c) { return static_cast<unsigned char>(c) == kPoison; });
}

void CheckGuards(char* block, size_t bytes) {
  if (!IsPoison(block - kGuard, block) ||
      !IsPoison(block + bytes, block + WholeBytes(bytes) + kGuard)) {
    Die("something wrote past the ends of the device's memory");
  }
}

char* MakeBlock(size_t bytes) {
  const size_t all = WholeBytes(bytes) + 2 * kGuard;
  auto* memory = static_cast<char*>(std::aligned_alloc(kGuard, all));
  if (memory == nullptr) return nullptr;
  std::memset(memory, kPoison, all);
  return memory + kGuard;
}

// Number of bytes that the device may hold; the environment may change it at any time.
size_t Capacity() {
  const char* given = std::getenv("STAND_IN_MEMORY_MB");
  return (given == nullptr ? size_t{4096} : std::strtoull(given, nullptr, 10)) << 20;
}

void RunUntil(Stream stream, int64_t behind) {
  while (stream->done < behind) {
    const Work work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    ++stream->done;
    work();
  }
}

int64_t Asked(Stream stream) { return stream->done + static_cast<int64_t>(stream->waiting.size()); }

const void* At(DevicePointer memory) { return reinterpret_cast<const void*>(memory); }

Result Copy(void* to, const void* from, size_t bytes, Stream stream) {
  Later(stream, [=] { std::memcpy(to, from, bytes); });
  return kSuccess;
}

}  // namespace

void Die(const char* what) {
  std::fprintf(stderr, "stand-in GPU: %s\n", what);
  std::abort();
}

void Later(Stream stream, Work work) {
  const Lock lock(The().mutex);
  stream->waiting.push_back(std::move(work));
}

bool OnDevice(const void* from, size_t bytes) {
  const Lock lock(The().mutex);
  return Within(The().device, from, bytes);
}

}  // namespace stand_in

namespace msrec {
namespace cuda {

using namespace stand_in;

MSREC_CUDA_FUNCTIONS(STAND_IN_DECLARE)

// Number of launches of a kernel so far; of all kernels, if it has no name.
STAND_IN int64_t StandInLaunches(const char* kernel) {
  const Lock lock(The().mutex);
  int64_t found = 0;
  for (const auto& [name, function] : The().functions) {
    if (*kernel == 0 || name == kernel) found += function.launches;
  }
  return found;
}

// Bytes of the device's memory that are in use.
STAND_IN int64_t StandInAllocated() {
  const Lock lock(The().mutex);
  return static_cast<int64_t>(The().allocated);
}

// Ends the process if something wrote past a block that is still there.
STAND_IN void StandInCheck() {
  const Lock lock(The().mutex);
  for (const auto& [block, bytes] : The().device) CheckGuards(block, bytes);
}

Result cuInit(unsigned flags) { return flags == 0 ? kSuccess : kInvalidValue; }

Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

Result cuGetErrorString(Result result, const char** text) {
  *text = result == kInvalidValue     ? "invalid argument"
          : result == kInvalidContext ? "invalid device context"
          : result == kInvalidHandle  ? "invalid resource handle"
                                      : "unknown error";
  return kSuccess;
}

Result cuDeviceGetCount(int* count) {
  *count = 1;
  return kSuccess;
}

Result cuDeviceGet(Device* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? kSuccess : kInvalidValue;
}

Result cuDeviceGetName(char* name, int bytes, Device) {
  std::snprintf(name, static_cast<size_t>(bytes), "stand-in GPU");
  return kSuccess;
}

Result cuDeviceGetAttribute(int* value, int attribute, Device) {
  if (attribute != kComputeCapabilityMajor && attribute != kComputeCapabilityMinor) {
    return kInvalidValue;
  }
  *value = attribute == kComputeCapabilityMajor ? 9 : 0;
  return kSuccess;
}

Result cuDevicePrimaryCtxRetain(Context* context, Device) {
  *context = &The().context;
  return kSuccess;
}

Result cuCtxSetCurrent(Context context) {
  current = context;
  return kSuccess;
}

Result cuStreamCreate(Stream* stream, unsigned flags) {
  if (current == nullptr) return kInvalidContext;
  if (flags != kNonBlocking) return kInvalidValue;
  *stream = new StreamTag;
  return kSuccess;
}

Result cuStreamSynchronize(Stream stream) {
  if (current == nullptr) return kInvalidContext;
  const Lock lock(The().mutex);
  RunUntil(stream, Asked(stream));
  return kSuccess;
}

Result cuEventCreate(Event* event, unsigned flags) {
  if (current == nullptr) return kInvalidContext;
  if (flags != kDisableTiming) return kInvalidValue;
  *event = new EventTag;
  return kSuccess;
}

Result cuEventRecord(Event event, Stream stream) {
  if (current == nullptr) return kInvalidContext;
  const Lock lock(The().mutex);
  *event = {stream, Asked(stream)};
  return kSuccess;
}

Result cuEventSynchronize(Event event) {
  if (current == nullptr) return kInvalidContext;
  const Lock lock(The().mutex);
  if (event->stream != nullptr) RunUntil(event->stream, event->behind);
  return kSuccess;
}

Result cuMemAlloc_v2(DevicePointer* memory, size_t bytes) {
  if (current == nullptr) return kInvalidContext;
  if (bytes == 0) return kInvalidValue;
  const Lock lock(The().mutex);
  if (The().allocated + bytes > Capacity()) return kOutOfMemory;
  char* block = MakeBlock(bytes);
  if (block == nullptr) return kOutOfMemory;
  The().allocated += bytes;
  The().device.emplace(block, bytes);
  *memory = reinterpret_cast<DevicePointer>(block);
  return kSuccess;
}

Result cuMemFree_v2(DevicePointer memory) {
  if (current == nullptr) return kInvalidContext;
  const Lock lock(The().mutex);
  const auto found = The().device.find(reinterpret_cast<char*>(memory));
  if (found == The().device.end()) Die("what is freed was not allocated");
  const auto [block, bytes] = *found;
  CheckGuards(block, bytes);
  The().device.erase(found);
  The().allocated -= bytes;
  std::memset(block, kPoison, bytes);  // who reads it later finds NaN, while nobody reuses it
  std::free(block - kGuard);
  return kSuccess;
}

Result cuMemAllocHost_v2(void** memory, size_t bytes) {
  if (current == nullptr) return kInvalidContext;
  const Lock lock(The().mutex);
  char* block = MakeBlock(bytes);
  if (block == nullptr) return kOutOfMemory;
  The().pinned.emplace(block, bytes);
  *memory = block;
  return kSuccess;
}

// From and to page-locked memory only: with other memory copies wait, and nothing overlaps.
Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes, Stream stream) {
  if (current == nullptr) return kInvalidContext;
  if (!OnDevice(At(to), bytes) || !Within(The().pinned, from, bytes)) return kInvalidValue;
  return Copy(reinterpret_cast<void*>(to), from, bytes, stream);
}

Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, Stream stream) {
  if (current == nullptr) return kInvalidContext;
  if (!OnDevice(At(from), bytes) || !Within(The().pinned, to, bytes)) return kInvalidValue;
  return Copy(to, At(from), bytes, stream);
}

Result cuMemsetD8Async(DevicePointer memory, unsigned char value, size_t bytes, Stream stream) {
  if (current == nullptr) return kInvalidContext;
  if (!OnDevice(At(memory), bytes)) return kInvalidValue;
  Later(stream, [=] { std::memset(reinterpret_cast<void*>(memory), value, bytes); });
  return kSuccess;
}

Result cuModuleLoadData(Module* module, const void* code) {
  if (current == nullptr) return kInvalidContext;
  *module = &The().module;
  return std::strcmp(static_cast<const char*>(code), "stand-in code") == 0 ? kSuccess
                                                                           : kInvalidValue;
}

Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  const auto found = Kernels().find(name);
  if (module != &The().module || found == Kernels().end()) return kInvalidHandle;
  const Lock lock(The().mutex);
  *function = &The().functions.emplace(name, FunctionTag{found->second}).first->second;
  return kSuccess;
}

Result cuLaunchKernel(Function function, unsigned blocks, unsigned blocks_y, unsigned blocks_z,
                      unsigned block, unsigned block_y, unsigned block_z, unsigned shared,
                      Stream stream, void** parameters, void** extra) {
  if (current == nullptr) return kInvalidContext;
  const bool plain = blocks_y == 1 && blocks_z == 1 && block == kBlock && block_y == 1 &&
                     block_z == 1 && shared == 0 && extra == nullptr;
  if (!plain || blocks == 0) return kInvalidValue;
  int64_t threads = 0;
  std::memcpy(&threads, parameters[1], sizeof(threads));
  if (threads > int64_t{blocks} * kBlock) Die("a launch has fewer threads than it needs");
  ++function->launches;
  const Kernel kernel = function->kernel;
  const auto* first = static_cast<const char*>(parameters[0]);
  std::vector<char> arguments(first, first + kernel.arguments);
  Later(stream, [kernel, threads, arguments = std::move(arguments)] {
    // In no order that a GPU promises: from the last thread to the first.
    for (int64_t i = threads; i-- > 0;) kernel.run(i, arguments.data());
  });
  return kSuccess;
}

}  // namespace cuda
}  // namespace msrec
