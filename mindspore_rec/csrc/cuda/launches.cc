// SPDX-License-Identifier: Apache-2.0
#include "cuda/launches.h"

#include <stdexcept>

namespace msrec {
namespace kernel_loops {
namespace {

thread_local KernelDevice* current_device = nullptr;

Elementwise MakeLoops() {
  Elementwise loops = {};
  loops.name = "cuda";
  SetRowLoops(&loops);
  SetSumLoops(&loops);
  SetGroupLoops(&loops);
  SetCrossLoops(&loops);
  SetNumberLoops(&loops);
  return loops;
}

}  // namespace
}  // namespace kernel_loops

KernelDevice& CurrentKernelDevice() {
  KernelDevice* device = kernel_loops::current_device;
  if (device == nullptr) throw std::logic_error("no device runs a program in this thread");
  return *device;
}

void SetCurrentKernelDevice(KernelDevice* device) { kernel_loops::current_device = device; }

void KernelDevice::Begin() { SetCurrentKernelDevice(this); }
void KernelDevice::End() { SetCurrentKernelDevice(nullptr); }

const Elementwise& KernelDevice::loops() const {
  static const Elementwise loops = kernel_loops::MakeLoops();
  return loops;
}

}  // namespace msrec
