// SPDX-License-Identifier: Apache-2.0
//
// DeviceProgram: the runs of a DenseProgram on a device. Rows of inputs and outputs, parameters and
// their gradients come from and go to the host's memory; what is between them stays on the device.
//
// Layers work on the host, in the same code as for a program there, where they do so once a batch
// on vectors as wide as a layer: to pack a cross network, to join the statistics of a batch
// normalization, to sum up a bias' gradient. That takes microseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dense/program.h"

namespace msrec {

class Layer;

class DeviceProgram {
 public:
  // Forward passes that may wait for their backward pass: kLeastKept of them, and more while all
  // take less than kKeptBytes together. Nobody says which of them will have no backward pass.
  static constexpr size_t kLeastKept = 8;
  static constexpr size_t kKeptBytes = size_t{1} << 30;

  explicit DeviceProgram(const DenseProgram& program);

  // As the methods of DenseProgram, with a run that describes the batch and the host's memory.
  // `saved` of a run for training gets the name of what is kept on the device for the backward
  // pass.
  void Forward(const BatchRun& host, const std::vector<const float*>& inputs,
               const std::vector<float*>& outputs);
  void Backward(const BatchRun& host, const std::vector<const float*>& output_gradients,
                const std::vector<float*>& input_gradients);

  // Frees all memory except that of forward passes whose backward pass is still to come. A later
  // run allocates it anew.
  void Release();

 private:
  // Values and weights of a forward pass, for its backward pass.
  struct Kept {
    explicit Kept(DenseDevice* device)
        : saved(device), packed(device), rounded(device), parameters(device), extras(device) {}
    size_t bytes() const { return saved.bytes() + parameters.bytes() + rounded.bytes(); }
    void Release() {
      for (DeviceMemory* each : {&saved, &packed, &rounded, &parameters, &extras}) each->Release();
    }

    int64_t name = 0;
    bool waits = false;  // for its backward pass
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
  // Returns device memory for matrices of these widths, one behind the other.
  std::vector<float*> Stage(const std::vector<int64_t>& widths, int64_t rows, DeviceMemory* memory);
  void DownloadPartials(const BatchRun& run, BatchRun* host);
  void ParameterGradients(BatchRun run, BatchRun* host);

  const DenseProgram& program_;
  DenseDevice* const device_;
  std::vector<std::unique_ptr<Kept>> kept_;  // from the one used last to the oldest
  int64_t last_name_ = 0;
  Kept predicted_;
  DeviceMemory scratch_, temporary_, partials_, gradients_, parameter_gradients_, inputs_, outputs_;
  std::vector<float> partial_sums_;  // on the host
};

}  // namespace msrec
