// SPDX-License-Identifier: Apache-2.0
//
// DenseDevice: a processor beside the host's that runs dense programs. A program's batch is one
// slice there, and its values, gradients and weights are in the device's memory. Layers are the
// same on both: the device has its own loops (`Elementwise`) and products.
//
// A device works in the order of the calls. One thread uses a device at a time: who runs a program
// holds `mutex()`.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "dense/elementwise.h"
#include "dense/onednn.h"

namespace msrec {

class DenseDevice {
 public:
  virtual ~DenseDevice() = default;

  // "cuda:0"
  virtual std::string name() const = 0;
  // Model, driver and libraries of the device, for reports.
  virtual std::string description() const = 0;

  // The loops, over blocks of the device's memory.
  virtual const Elementwise& loops() const = 0;
  // C = A B or C += A B, as `ProductShape` says; B is never packed.
  virtual void Multiply(const ProductShape& shape, const void* a, const void* b, float* c) = 0;

  // Throws std::bad_alloc if the device has no such memory left.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  virtual void Clear(void* memory, size_t bytes) = 0;
  // Copies from the host's memory, which may be changed when this returns.
  virtual void Upload(const void* from, size_t bytes, void* to) = 0;
  // Copies to the host's memory, and waits for it.
  virtual void Download(const void* from, size_t bytes, void* to) = 0;

  // Called before and after a run, by its thread (`DeviceTurn`).
  virtual void Begin() {}
  virtual void End() {}

  std::mutex& mutex() { return mutex_; }

 private:
  std::mutex mutex_;
};

// A thread's turn on a device, which runs one program at a time.
class DeviceTurn {
 public:
  explicit DeviceTurn(DenseDevice* device) : device_(device), lock_(device->mutex()) {
    device_->Begin();
  }
  ~DeviceTurn() { device_->End(); }
  DeviceTurn(const DeviceTurn&) = delete;
  DeviceTurn& operator=(const DeviceTurn&) = delete;

 private:
  DenseDevice* const device_;
  const std::lock_guard<std::mutex> lock_;
};

// Memory of a device, which only ever grows.
class DeviceMemory {
 public:
  explicit DeviceMemory(DenseDevice* device) : device_(device) {}
  ~DeviceMemory() { device_->Free(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Returns at least that many bytes; the contents are lost if the memory grows.
  void* AtLeast(size_t bytes) {
    if (bytes <= capacity_) return data_;
    Release();
    data_ = device_->Allocate(bytes);
    capacity_ = bytes;
    return data_;
  }
  float* Floats(int64_t n) {
    return static_cast<float*>(AtLeast(sizeof(float) * static_cast<size_t>(n)));
  }
  void* data() const { return data_; }
  size_t bytes() const { return capacity_; }
  void Release() {
    device_->Free(data_);
    data_ = nullptr;
    capacity_ = 0;
  }

 private:
  DenseDevice* const device_;
  void* data_ = nullptr;
  size_t capacity_ = 0;
};

// Returns the device that programs made from now on run on; null: the host.
std::shared_ptr<DenseDevice> ActiveDenseDevice();
void SetDenseDevice(std::shared_ptr<DenseDevice> device);

}  // namespace msrec
