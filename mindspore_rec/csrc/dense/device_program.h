// SPDX-License-Identifier: Apache-2.0
//
// DeviceProgram: runs a DenseProgram on a device. The inputs, the outputs, the parameters and the
// gradients of parameters are copied between the device's memory and the host's memory. All values
// between inputs and outputs stay on the device.
//
// For some layers, the host does small work on single vectors once per batch, for example packing a
// cross network, joining the statistics of a batch normalization, and summing up the gradient of a
// bias. The work on single vectors takes only microseconds, and uses the same code as a program on
// the host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dense/program.h"

namespace msrec {

class Layer;

class DeviceProgram {
 public:
  // Limits on the number of forward passes that wait for their backward passes. Up to kLeastKept
  // forward passes may always wait. More than kLeastKept forward passes may wait only if they take
  // at most kKeptBytes together. The number of waiting forward passes is limited, because the
  // program cannot know whether a forward pass will have a backward pass.
  static constexpr size_t kLeastKept = 8;
  static constexpr size_t kKeptBytes = size_t{1} << 30;

  explicit DeviceProgram(const DenseProgram& program);

  // Forward and Backward correspond to the methods of DenseProgram with the same names. `host`
  // describes the batch and the host's memory. In training, Forward writes to `saved` the number
  // under which the device keeps the values for the backward pass.
  void Forward(const BatchRun& host, const std::vector<const float*>& inputs,
               const std::vector<float*>& outputs);
  void Backward(const BatchRun& host, const std::vector<const float*>& output_gradients,
                const std::vector<float*>& input_gradients);

  // Frees all memory, except the memory of forward passes whose backward pass has not run yet. A
  // later run allocates the memory again.
  void Release();

 private:
  // Values and weights that a forward pass stores for the backward pass.
  struct Kept {
    explicit Kept(DenseDevice* device)
        : saved(device), packed(device), rounded(device), parameters(device), extras(device) {}
    size_t bytes() const { return saved.bytes() + parameters.bytes() + rounded.bytes(); }
    void Release() {
      for (DeviceMemory* each : {&saved, &packed, &rounded, &parameters, &extras}) each->Release();
    }

    int64_t name = 0;
    bool waits = false;  // true while the forward pass waits for its backward pass
    DeviceMemory saved, packed, rounded, parameters, extras;
    std::vector<const float*> parameter_at;
    std::vector<const void*> extra_at;
  };

  bool HasRoom() const;
  Kept* Keep();
  Kept* Find(const BatchRun& host);
  BatchRun RunOn(const BatchRun& host, Kept* kept);
  void UploadParameters(const BatchRun& host, Kept* kept);
  void UploadExtras(const BatchRun& host, Kept* kept);
  // Returns device memory for consecutive matrices with the widths `widths`.
  std::vector<float*> Stage(const std::vector<int64_t>& widths, int64_t rows, DeviceMemory* memory);
  void DownloadPartials(const BatchRun& run, BatchRun* host);
  void ParameterGradients(BatchRun run, BatchRun* host);

  const DenseProgram& program_;
  DenseDevice* const device_;
  std::vector<std::unique_ptr<Kept>> kept_;  // the most recently used pass first
  int64_t last_name_ = 0;
  Kept predicted_;
  DeviceMemory scratch_, temporary_, partials_, gradients_, parameter_gradients_, inputs_, outputs_;
  std::vector<float> partial_sums_;  // in the host's memory
};

}  // namespace msrec
