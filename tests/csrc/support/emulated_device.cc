// SPDX-License-Identifier: Apache-2.0
#include "emulated_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

#include "cuda/kernels.inl"

namespace msrec {
namespace {

constexpr size_t kGuard = 256;  // bytes at both ends
constexpr int kPoison = 0xff;   // of such bytes a float is NaN

size_t WholeBytes(size_t bytes) { return (bytes + kGuard - 1) / kGuard * kGuard; }

bool IsPoison(const char* from, const char* end) {
  return std::all_of(from, end, [](char c) { return static_cast<unsigned char>(c) == kPoison; });
}

float FactorAt(const ProductShape& shape, const void* factor, int64_t at) {
  if (shape.type == FactorType::kFloat32) return static_cast<const float*>(factor)[at];
  return kernels::Widened(static_cast<const uint16_t*>(factor)[at]);
}

}  // namespace

EmulatedDevice::~EmulatedDevice() {
  for (const auto& [memory, bytes] : sizes_) std::free(memory - kGuard);
}

void EmulatedDevice::Multiply(const ProductShape& shape, const void* a, const void* b, float* c) {
  if (shape.packed_b) throw std::logic_error("a device has no packed factors");
  for (int64_t i = 0; i < shape.m; ++i) {
    for (int64_t j = 0; j < shape.n; ++j) {
      float* at = c + i * shape.ldc + j;
      double sum = shape.accumulates ? static_cast<double>(*at) : 0.0;
      for (int64_t p = 0; p < shape.k; ++p) {
        const int64_t of_a = shape.transposed_a ? p * shape.lda + i : i * shape.lda + p;
        const int64_t of_b = shape.transposed_b ? j * shape.ldb + p : p * shape.ldb + j;
        sum += static_cast<double>(FactorAt(shape, a, of_a)) * FactorAt(shape, b, of_b);
      }
      *at = static_cast<float>(sum);
    }
  }
}

void* EmulatedDevice::Allocate(size_t bytes) {
  if (allowed_ == 0) throw std::bad_alloc();
  if (allowed_ > 0) --allowed_;
  const size_t all = WholeBytes(bytes) + 2 * kGuard;
  auto* memory = static_cast<char*>(std::aligned_alloc(kGuard, all));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, kPoison, all);
  sizes_.emplace(memory + kGuard, bytes);
  return memory + kGuard;
}

void EmulatedDevice::Free(void* memory) {
  if (memory == nullptr) return;
  const auto found = sizes_.find(static_cast<char*>(memory));
  if (found == sizes_.end()) throw std::logic_error("freed what the device did not allocate");
  char* first = found->first;
  const size_t bytes = found->second;
  const bool whole = IsPoison(first - kGuard, first) &&
                     IsPoison(first + bytes, first + WholeBytes(bytes) + kGuard);
  sizes_.erase(found);
  std::free(first - kGuard);
  if (!whole) throw std::logic_error("something wrote past the ends of the device's memory");
}

void EmulatedDevice::Clear(void* memory, size_t bytes) {
  if (bytes > 0) std::memset(memory, 0, bytes);
}

void EmulatedDevice::Upload(const void* from, size_t bytes, void* to) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void EmulatedDevice::Download(const void* from, size_t bytes, void* to) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void* EmulatedDevice::Scratch(size_t bytes) {
  scratch_.assign((bytes + sizeof(double) - 1) / sizeof(double),
                  std::numeric_limits<double>::quiet_NaN());
  return scratch_.data();
}

void EmulatedDevice::Start(const char* kernel, int64_t threads, const void* arguments) {
  const auto found = kernels::Kernels().find(kernel);
  if (found == kernels::Kernels().end()) {
    throw std::logic_error(std::string("there is no kernel ") + kernel);
  }
  if (threads > std::numeric_limits<uint32_t>::max()) {
    throw std::logic_error("more threads than their numbers have bits for");
  }
  ++started_;
  for (int64_t i = 0; i < threads; ++i) found->second(i, arguments);
}

}  // namespace msrec
