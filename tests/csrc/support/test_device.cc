// SPDX-License-Identifier: Apache-2.0
#include "test_device.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/cuda_device.h"
#include "dense/dense_device.h"
#include "emulated_device.h"

namespace msrec {
namespace {

std::string FromEnvironment(const char* name, const std::string& missing) {
  const char* value = std::getenv(name);
  return value == nullptr ? missing : value;
}

// A GPU whose memory is NaN at first: products must not read what is between rows.
class PoisonedGpu : public cuda::CudaDevice {
 public:
  using CudaDevice::CudaDevice;
  void* Allocate(size_t bytes) override {
    void* memory = CudaDevice::Allocate(bytes);
    const std::vector<unsigned char> poison(bytes, 0xff);
    Upload(poison.data(), bytes, memory);
    return memory;
  }
};

}  // namespace

void UseDeviceOfEnvironment() {
  const std::string name = FromEnvironment("MSREC_TEST_DENSE_DEVICE", "cpu");
  if (name == "emulated") {
    SetDenseDevice(std::make_shared<EmulatedDevice>());
  } else if (name == "cuda") {
    const cuda::Libraries libraries = {FromEnvironment("MSREC_TEST_NVRTC", "libnvrtc.so.13"),
                                       FromEnvironment("MSREC_TEST_CUBLASLT", "libcublasLt.so.13")};
    SetDenseDevice(std::make_shared<PoisonedGpu>(0, libraries, ""));
  } else if (name != "cpu") {
    throw std::runtime_error("MSREC_TEST_DENSE_DEVICE must be cpu, emulated or cuda, got " + name);
  }
  if (const auto device = ActiveDenseDevice()) {
    std::printf("dense programs run on %s: %s\n", device->name().c_str(),
                device->description().c_str());
  }
}

}  // namespace msrec
