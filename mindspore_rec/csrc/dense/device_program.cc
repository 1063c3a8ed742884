// SPDX-License-Identifier: Apache-2.0
#include "dense/device_program.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "dense/layer.h"
#include "util/bytes.h"

namespace msrec {
namespace {

std::mutex active_mutex;
std::shared_ptr<DenseDevice>& Active() {
  // The object is never destroyed, because programs may still run while the process ends.
  static auto* active = new std::shared_ptr<DenseDevice>;
  return *active;
}

constexpr int64_t kAlignedFloats = 64;

size_t SizeOfFloats(int64_t floats) { return sizeof(float) * static_cast<size_t>(floats); }

// Throws if several workers share the batch. A shared batch could cause a deadlock: one worker
// holds the device and waits for another worker's statistics, and the other worker waits for the
// device.
void RequireNoWorkers(const BatchRun& run, const DenseDevice& device) {
  if (run.share == nullptr) return;
  throw std::invalid_argument("layers on " + device.name() +
                              " cannot take a part of a batch that several workers share: make "
                              "them on the CPU, by set_dense_device('cpu')");
}

// Returns the size in bytes of a matrix that is copied to or from a device, in float32 or bfloat16.
size_t MatrixBytes(bool halves, int64_t rows, int64_t width) {
  return (halves ? 2 : 4) * static_cast<size_t>(rows * width);
}

std::vector<int64_t> WidthsOf(const std::vector<View>& views) {
  std::vector<int64_t> widths;
  for (const View& view : views) widths.push_back(view.width);
  return widths;
}

// Returns a copy of `given` whose device and slices are copied from `run`.
BatchRun HostOf(const BatchRun& given, const BatchRun& run) {
  BatchRun host = given;
  host.device = run.device;
  host.slice_rows = run.slice_rows;
  host.slices = run.slices;
  return host;
}

}  // namespace

std::shared_ptr<DenseDevice> ActiveDenseDevice() {
  std::lock_guard<std::mutex> lock(active_mutex);
  return Active();
}

void SetDenseDevice(std::shared_ptr<DenseDevice> device) {
  std::lock_guard<std::mutex> lock(active_mutex);
  Active() = std::move(device);
}

DeviceProgram::DeviceProgram(const DenseProgram& program)
    : program_(program),
      device_(program.device()),
      predicted_(device_),
      scratch_(device_),
      temporary_(device_),
      partials_(device_),
      gradients_(device_),
      parameter_gradients_(device_),
      inputs_(device_),
      outputs_(device_) {
  // The device computes some gradients from all rows, and the host computes the other gradients
  // from partial sums. If several layers share a part of a parameter, either the device or the host
  // must compute the part's gradient for all of these layers.
  std::map<ParameterPart, bool> made_there;
  for (const auto& stage : program.stages_) {
    for (const auto& layer : stage) {
      const std::vector<ParameterPart> there = layer->device_parts();
      for (const ParameterPart& part : layer->parameters()) {
        const bool is_there = std::any_of(there.begin(), there.end(), [&](const auto& other) {
          return !(part < other) && !(other < part);
        });
        if (made_there.emplace(part, is_there).first->second == is_there) continue;
        throw std::invalid_argument("layers of two kinds share parameter " +
                                    std::to_string(part.parameter) + ", which " + device_->name() +
                                    " cannot learn");
      }
    }
  }
}

void DeviceProgram::Release() {
  std::lock_guard<std::mutex> lock(device_->mutex());
  kept_.erase(std::remove_if(kept_.begin(), kept_.end(), [](const auto& k) { return !k->waits; }),
              kept_.end());
  predicted_.Release();
  for (DeviceMemory* each : {&scratch_, &temporary_, &partials_, &gradients_, &parameter_gradients_,
                             &inputs_, &outputs_}) {
    each->Release();
  }
}

// Returns whether the program may keep the values of one more forward pass for its backward pass.
bool DeviceProgram::HasRoom() const {
  if (kept_.size() < kLeastKept) return true;
  size_t bytes = kept_.front()->bytes();  // the next pass takes about the same number of bytes
  for (const auto& kept : kept_) bytes += kept->bytes();
  return bytes <= kKeptBytes;
}

// Returns memory for a forward pass. Reuses the memory of an earlier forward pass whose backward
// pass is done. If all earlier passes still wait for their backward passes and no more memory may
// be allocated, reuses the memory of the oldest pass.
DeviceProgram::Kept* DeviceProgram::Keep() {
  auto at = std::find_if(kept_.rbegin(), kept_.rend(), [](const auto& k) { return !k->waits; });
  if (at == kept_.rend() && HasRoom()) {
    kept_.push_back(std::make_unique<Kept>(device_));
    at = kept_.rbegin();
  }
  if (at == kept_.rend()) at = kept_.rbegin();
  std::unique_ptr<Kept> taken = std::move(*at);
  kept_.erase(std::next(at).base());
  taken->name = ++last_name_;
  taken->waits = false;  // until the forward pass is complete
  kept_.insert(kept_.begin(), std::move(taken));
  return kept_.front().get();
}

DeviceProgram::Kept* DeviceProgram::Find(const BatchRun& host) {
  int64_t name = 0;
  std::memcpy(&name, host.saved, sizeof(name));
  const auto at = std::find_if(kept_.begin(), kept_.end(),
                               [&](const auto& kept) { return kept->name == name; });
  if (at == kept_.end()) {
    throw std::runtime_error(
        "the values of a forward pass are no longer on " + device_->name() +
        ": too many later ones of this layer and its copies wait for their backward passes (" +
        std::to_string(kLeastKept) + " can, and more while they take less than 1 GiB)");
  }
  return at->get();
}

BatchRun DeviceProgram::RunOn(const BatchRun& host, Kept* kept) {
  BatchRun run = host;
  run.device = device_;
  run.loops = &device_->loops();
  run.temporary = &temporary_;
  run.slice_rows = run.batch;
  run.slices = 1;
  run.saved = nullptr;
  run.packed =
      static_cast<char*>(kept->packed.AtLeast(static_cast<size_t>(program_.packed_bytes_)));
  run.rounded =
      static_cast<char*>(kept->rounded.AtLeast(static_cast<size_t>(program_.rounded_bytes_)));
  run.partial_sums = partials_.Floats(program_.partial_width_);
  run.parameters = kept->parameter_at;
  run.extras = kept->extra_at;
  return run;
}

void DeviceProgram::UploadParameters(const BatchRun& host, Kept* kept) {
  const std::vector<float*> at = Stage(program_.parameter_sizes_, 1, &kept->parameters);
  for (size_t i = 0; i < at.size(); ++i) {
    device_->Upload(host.parameters[i], SizeOfFloats(program_.parameter_sizes_[i]), at[i]);
  }
  kept->parameter_at.assign(at.begin(), at.end());
}

// Uploads the masks. Counters are not uploaded, because the host reads them.
void DeviceProgram::UploadExtras(const BatchRun& host, Kept* kept) {
  std::vector<int> numbers;
  std::vector<int64_t> sizes;
  for (const auto& [number, extra] : program_.extra_inputs_) {
    if (std::strcmp(extra.type, "float32") != 0) continue;
    numbers.push_back(number);
    sizes.push_back(extra.size);
  }
  const std::vector<float*> at = Stage(sizes, 1, &kept->extras);
  kept->extra_at = host.extras;
  for (size_t i = 0; i < at.size(); ++i) {
    device_->Upload(host.extras[numbers[i]], SizeOfFloats(sizes[i]), at[i]);
    kept->extra_at[numbers[i]] = at[i];
  }
}

std::vector<float*> DeviceProgram::Stage(const std::vector<int64_t>& widths, int64_t rows,
                                         DeviceMemory* memory) {
  int64_t floats = 0;
  for (const int64_t width : widths) floats += RoundUp(rows * width, kAlignedFloats);
  float* at = memory->Floats(floats);
  std::vector<float*> staged;
  for (const int64_t width : widths) {
    staged.push_back(at);
    at += RoundUp(rows * width, kAlignedFloats);
  }
  return staged;
}

// Copies the partial sums to the host, where layers compute gradients from these sums.
void DeviceProgram::DownloadPartials(const BatchRun& run, BatchRun* host) {
  partial_sums_.resize(static_cast<size_t>(program_.partial_width_));
  host->partial_sums = partial_sums_.data();
  if (!partial_sums_.empty()) {
    device_->Download(run.partial_sums, SizeOfFloats(program_.partial_width_),
                      partial_sums_.data());
  }
}

void DeviceProgram::Forward(const BatchRun& given, const std::vector<const float*>& inputs,
                            const std::vector<float*>& outputs) {
  RequireNoWorkers(given, *device_);
  const DeviceTurn turn(device_);
  Kept* kept = given.training ? Keep() : &predicted_;
  UploadParameters(given, kept);
  UploadExtras(given, kept);
  BatchRun run = RunOn(given, kept);
  BatchRun host = HostOf(given, run);
  const auto upload_packed = [&] {
    if (program_.packed_bytes_ == 0) return;
    device_->Upload(host.packed, static_cast<size_t>(program_.packed_bytes_), run.packed);
  };
  program_.Pack(host);
  upload_packed();
  for (const auto& stage : program_.stages_) {
    for (const auto& layer : stage) layer->Prepare(run);
  }
  const int64_t saved = program_.saved_width_ * run.batch;
  if (run.training) run.saved = kept->saved.Floats(saved);
  const int64_t scratch = program_.brief_width_ * run.batch + (run.training ? 0 : saved);
  const SliceRun slice(run, 0, scratch_.Floats(scratch));

  const std::vector<int64_t> widths = WidthsOf(program_.inputs_);
  const std::vector<int64_t> output_widths = WidthsOf(program_.outputs_);
  const std::vector<float*> staged = Stage(widths, run.batch, &inputs_);
  const std::vector<float*> results = Stage(output_widths, run.batch, &outputs_);
  for (size_t i = 0; i < widths.size(); ++i) {
    const uint16_t* halves = ElementOrNull(given.bfloat16_inputs, i);
    const void* from = halves != nullptr ? static_cast<const void*>(halves) : inputs[i];
    device_->Upload(from, MatrixBytes(halves != nullptr, run.batch, widths[i]), staged[i]);
    if (halves != nullptr) run.bfloat16_inputs[i] = reinterpret_cast<uint16_t*>(staged[i]);
  }
  for (size_t stage = 0; stage < program_.stages_.size(); ++stage) {
    if (program_.stages_.size() > 1) {
      device_->Clear(run.partial_sums, SizeOfFloats(program_.partial_width_));
    }
    program_.ForwardSlice(run, stage, slice, {staged.begin(), staged.end()}, results);
    if (stage + 1 == program_.stages_.size() || program_.stages_[stage].empty()) continue;
    DownloadPartials(run, &host);
    program_.stages_[stage].back()->BetweenForward(host);
    upload_packed();
  }
  for (size_t i = 0; i < results.size(); ++i) {
    device_->Download(results[i], MatrixBytes(false, run.batch, output_widths[i]), outputs[i]);
  }
  if (!given.training) return;
  std::memcpy(given.saved, &kept->name, sizeof(kept->name));
  kept->waits = true;
}

void DeviceProgram::Backward(const BatchRun& given,
                             const std::vector<const float*>& output_gradients,
                             const std::vector<float*>& input_gradients) {
  RequireNoWorkers(given, *device_);
  const DeviceTurn turn(device_);
  Kept* kept = Find(given);
  BatchRun run = RunOn(given, kept);
  run.saved = static_cast<float*>(kept->saved.data());
  run.gradients = gradients_.Floats(program_.gradient_width_ * run.batch);
  BatchRun host = HostOf(given, run);
  const SliceRun slice(run, 0, scratch_.Floats(program_.scratch_width_ * run.batch));

  const std::vector<int64_t> widths = WidthsOf(program_.inputs_);
  const std::vector<int64_t> output_widths = WidthsOf(program_.outputs_);
  const std::vector<float*> results = Stage(widths, run.batch, &inputs_);
  const std::vector<float*> staged = Stage(output_widths, run.batch, &outputs_);
  for (size_t i = 0; i < staged.size(); ++i) {
    device_->Upload(output_gradients[i], MatrixBytes(false, run.batch, output_widths[i]),
                    staged[i]);
  }
  const auto halves = [&](size_t i) { return ElementOrNull(given.bfloat16_input_gradients, i); };
  for (size_t i = 0; i < results.size(); ++i) {
    if (halves(i) == nullptr) continue;
    run.bfloat16_input_gradients[i] = reinterpret_cast<uint16_t*>(results[i]);
  }
  device_->Clear(run.partial_sums, SizeOfFloats(program_.partial_width_));
  for (size_t stage = program_.stages_.size(); stage-- > 0;) {
    program_.BackwardSlice(run, stage, slice, {staged.begin(), staged.end()}, results);
    if (stage == 0 || program_.stages_[stage - 1].empty()) continue;
    DownloadPartials(run, &host);
    program_.stages_[stage - 1].back()->BetweenBackward(host);
    device_->Upload(partial_sums_.data(), SizeOfFloats(program_.partial_width_), run.partial_sums);
  }
  ParameterGradients(std::move(run), &host);
  for (size_t i = 0; i < results.size(); ++i) {
    void* to = halves(i) != nullptr ? static_cast<void*>(halves(i)) : input_gradients[i];
    device_->Download(results[i], MatrixBytes(halves(i) != nullptr, given.batch, widths[i]), to);
  }
  kept->waits = false;
}

void DeviceProgram::ParameterGradients(BatchRun run, BatchRun* host) {
  const std::vector<float*> on_device = Stage(program_.parameter_sizes_, 1, &parameter_gradients_);
  run.parameter_gradients = on_device;
  std::vector<ParameterPart> parts;  // parts whose gradients the device computes
  for (size_t round = 0; round < program_.gradient_rounds_.size(); ++round) {
    for (const Layer* layer : program_.gradient_rounds_[round]) {
      layer->DeviceGradient(run, round > 0);
      const std::vector<ParameterPart> made = layer->device_parts();
      if (round == 0) parts.insert(parts.end(), made.begin(), made.end());
    }
  }
  DownloadPartials(run, host);
  program_.ParameterGradients(*host);
  for (const ParameterPart& part : parts) {
    device_->Download(on_device[part.parameter] + part.offset, SizeOfFloats(part.size),
                      host->parameter_gradients[part.parameter] + part.offset);
  }
}

}  // namespace msrec
