// SPDX-License-Identifier: Apache-2.0
//
// DenseDevice: a processor that runs dense programs in place of the host's CPU. On a device, a
// batch is one slice. Values, gradients and weights are in the device's memory. The host and the
// device run the same layers. Only the element-wise loops (`Elementwise`) and the matrix products
// have separate code for the device.
//
// A device runs calls in the order of the calls. Only one thread uses a device at a time: the
// thread locks `mutex()` to run a program.
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
  // Returns the model, the driver and the libraries of the device, for reports.
  virtual std::string description() const = 0;

  // Returns the device's element-wise loops, which work on blocks in the device's memory.
  virtual const Elementwise& loops() const = 0;
  // Computes C = A B or C += A B, as `shape` specifies. B must not be packed.
  virtual void Multiply(const ProductShape& shape, const void* a, const void* b, float* c) = 0;

  // Throws std::bad_alloc if the device has too little free memory.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  virtual void Clear(void* memory, size_t bytes) = 0;
  // Copies from the host's memory to the device's memory. When Upload has returned, the caller may
  // change the host's memory.
  virtual void Upload(const void* from, size_t bytes, void* to) = 0;
  // Copies from the device's memory to the host's memory, and returns when the copy is complete.
  virtual void Download(const void* from, size_t bytes, void* to) = 0;

  // The thread that runs a program calls Begin before the run and End after the run (`DeviceTurn`).
  virtual void Begin() {}
  virtual void End() {}

  std::mutex& mutex() { return mutex_; }

 private:
  std::mutex mutex_;
};

// Gives one thread the exclusive use of a device, for one run of a program.
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

// A block of device memory that grows on demand.
class DeviceMemory {
 public:
  explicit DeviceMemory(DenseDevice* device) : device_(device) {}
  ~DeviceMemory() { device_->Free(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Returns memory of at least `bytes` bytes. The contents are lost if the memory grows.
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

// ActiveDenseDevice returns the device for new programs, and SetDenseDevice sets this device. Null
// means the host.
std::shared_ptr<DenseDevice> ActiveDenseDevice();
void SetDenseDevice(std::shared_ptr<DenseDevice> device);

}  // namespace msrec
