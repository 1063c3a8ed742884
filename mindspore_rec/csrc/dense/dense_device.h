// SPDX-License-Identifier: Apache-2.0
//
// DenseDevice: a processor other than the host's CPU that runs dense programs. A program's batch is
// one slice there, and its values, gradients and weights are in the device's memory. The host and
// the device run the same layers; the device has its own loops (`Elementwise`) and products.
//
// A device runs the calls in their order. Only one thread uses a device at a time: the thread locks
// `mutex()` to run a program.
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

  // The loops over blocks of the device's memory.
  virtual const Elementwise& loops() const = 0;
  // Computes C = A B or C += A B, as `ProductShape` specifies; B is never packed.
  virtual void Multiply(const ProductShape& shape, const void* a, const void* b, float* c) = 0;

  // Throws std::bad_alloc if the device has too little free memory.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  virtual void Clear(void* memory, size_t bytes) = 0;
  // Copies from the host's memory, which the caller may change after the return.
  virtual void Upload(const void* from, size_t bytes, void* to) = 0;
  // Copies to the host's memory, and waits for the end of the copy.
  virtual void Download(const void* from, size_t bytes, void* to) = 0;

  // The running thread calls Begin before a run and End after the run (`DeviceTurn`).
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

// Device memory that only grows.
class DeviceMemory {
 public:
  explicit DeviceMemory(DenseDevice* device) : device_(device) {}
  ~DeviceMemory() { device_->Free(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Returns memory of at least that many bytes. The contents are lost if the memory grows.
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

// Returns the device that runs the programs created from now on; null: the host.
std::shared_ptr<DenseDevice> ActiveDenseDevice();
void SetDenseDevice(std::shared_ptr<DenseDevice> device);

}  // namespace msrec
