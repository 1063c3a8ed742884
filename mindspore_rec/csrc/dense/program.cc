// SPDX-License-Identifier: Apache-2.0
//
// Constructs a DenseProgram: checks the layers, lays out the memory, and plans the order of the
// layers.
#include "dense/program.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>

#include "dense/device_program.h"
#include "dense/layer.h"
#include "util/aligned.h"
#include "util/bytes.h"

namespace msrec {
namespace {

constexpr int64_t kMostWidth = int64_t{1} << 28;

}  // namespace

DenseProgram::DenseProgram(Precision precision)
    : precision_(precision), device_(ActiveDenseDevice()), stages_(1) {}

DenseProgram::~DenseProgram() = default;

int DenseProgram::AddValue(int64_t width) {
  if (width < 1 || width > kMostWidth) {
    throw std::invalid_argument("the width of a value must be in [1, " +
                                std::to_string(kMostWidth) + "], got " + std::to_string(width));
  }
  Value value;
  value.width = width;
  value.written.resize(static_cast<size_t>(width), false);
  values_.push_back(std::move(value));
  return static_cast<int>(values_.size()) - 1;
}

void DenseProgram::CheckView(const View& view) const {
  if (view.value < 0 || view.value >= static_cast<int>(values_.size())) {
    throw std::invalid_argument("there is no value " + std::to_string(view.value));
  }
  const int64_t width = values_[view.value].width;
  if (view.offset < 0 || view.offset > width || view.width < 1 ||
      view.width > width - view.offset) {
    throw std::invalid_argument("value " + std::to_string(view.value) + " has " +
                                std::to_string(width) + " columns, and not " +
                                std::to_string(view.width) + " from " +
                                std::to_string(view.offset) + " on");
  }
}

void DenseProgram::CheckWritten(const View& view) const {
  CheckView(view);
  const auto begin = values_[view.value].written.begin() + view.offset;
  if (std::find(begin, begin + view.width, false) != begin + view.width) {
    throw std::invalid_argument("columns of value " + std::to_string(view.value) +
                                " are read that nothing wrote");
  }
}

void DenseProgram::Write(const View& view) {
  CheckView(view);
  const auto begin = values_[view.value].written.begin() + view.offset;
  if (std::find(begin, begin + view.width, true) != begin + view.width) {
    throw std::invalid_argument("columns of value " + std::to_string(view.value) +
                                " are written twice");
  }
  std::fill(begin, begin + view.width, true);
}

void DenseProgram::AddInput(const View& view) {
  Write(view);
  Value& value = values_[view.value];
  if (value.stage != 0) value.crosses_stages = true;  // the first stage writes the inputs
  inputs_.push_back(view);
}

void DenseProgram::AddOutput(const View& view) {
  CheckView(view);
  outputs_.push_back(view);
}

void DenseProgram::AddLayer(std::unique_ptr<Layer> layer) {
  const int stage = static_cast<int>(stages_.size()) - 1;
  for (const Layer::Input& input : layer->inputs()) CheckWritten(input.view);
  for (const View& output : layer->outputs()) CheckView(output);
  for (const Layer::Input& input : layer->inputs()) {
    Value& value = values_[input.view.value];
    if (value.stage != stage) value.crosses_stages = true;
  }
  for (const View& output : layer->outputs()) {
    Value& value = values_[output.value];
    const bool is_new =
        std::find(value.written.begin(), value.written.end(), true) == value.written.end();
    Write(output);
    if (!is_new && value.stage != stage) value.crosses_stages = true;
    value.stage = stage;
  }
  layer->Attach(this);
  stages_.back().push_back(std::move(layer));
}

void DenseProgram::EndStage() { stages_.emplace_back(); }

int64_t DenseProgram::AddPartialSums(int64_t floats) {
  const int64_t column = partial_width_;
  partial_width_ += RoundUp(floats, 16);
  return column;
}

int64_t DenseProgram::AddPacked(size_t bytes) {
  const int64_t offset = packed_bytes_;
  packed_bytes_ += RoundUp(static_cast<int64_t>(bytes), AlignedMemory::kAlignment);
  return offset;
}

int64_t DenseProgram::AddRounded(size_t bytes) {
  constexpr int64_t kAlignment = 256;  // the alignment with which a device multiplies fastest
  const int64_t offset = rounded_bytes_;
  rounded_bytes_ += RoundUp(static_cast<int64_t>(bytes), kAlignment);
  return offset;
}

void DenseProgram::Finish(int parameters, int extras) {
  if (inputs_.empty() || outputs_.empty()) {
    throw std::invalid_argument("a program needs at least one input and one output");
  }
  if (parameters < 0 || extras < 0) {
    throw std::invalid_argument(
        "the number of parameters and of further inputs must be at least 0");
  }
  parameters_ = parameters;
  extras_ = extras;
  size_t parts = 0;
  for (const auto& stage : stages_) {
    for (const auto& layer : stage) {
      CheckLayer(*layer);
      AddExtras(*layer);
      parts += layer->parameters().size();
    }
  }
  if (static_cast<size_t>(parameters) > parts) {  // checked before memory for the parameters is
                                                  // allocated
    throw std::invalid_argument("every parameter must be of a layer");
  }
  for (const View& output : outputs_) {
    CheckWritten(output);
    // The first stage reads the inputs, and the last stage writes the outputs.
    if (values_[output.value].stage + 1 != static_cast<int>(stages_.size())) {
      values_[output.value].crosses_stages = true;
    }
  }
  FindOnlyRounded();
  SizeParameters();
  PlaceValues();
  PlanGradients();
  PlaceGiven();
  PlanRounds();
  if (device_ != nullptr) on_device_ = std::make_unique<DeviceProgram>(*this);
}

// Finds the values that need not be stored in float32, because only matrix products read the
// values.
void DenseProgram::FindOnlyRounded() {
  if (precision_ == Precision::kFloat32) return;
  std::vector<int> writers(values_.size(), 0);
  std::vector<bool> others(values_.size(), false);  // true if anything else uses the value
  for (const View& input : inputs_) others[input.value] = true;
  for (const View& output : outputs_) others[output.value] = true;
  for (const auto& stage : stages_) {
    for (const auto& layer : stage) {
      for (const Layer::Input& input : layer->inputs()) {
        if (!layer->reads_factors_only()) others[input.view.value] = true;
      }
      for (const View& output : layer->outputs()) {
        ++writers[output.value];
        if (!layer->can_round_output()) others[output.value] = true;
      }
    }
  }
  for (size_t v = 0; v < values_.size(); ++v) {
    Value& value = values_[v];
    value.only_rounded = value.is_factor && writers[v] == 1 && !others[v] && !value.crosses_stages;
  }
}

void DenseProgram::CheckLayer(const Layer& layer) const {
  for (const ParameterPart& part : layer.parameters()) {
    if (part.parameter < 0 || part.parameter >= parameters_ || part.offset < 0) {
      throw std::invalid_argument("a layer has element " + std::to_string(part.offset) +
                                  " of parameter " + std::to_string(part.parameter) +
                                  ", and there are " + std::to_string(parameters_));
    }
  }
  for (const ExtraInput& extra : layer.extras()) {
    if (extra.number < 0 || extra.number >= extras_) {
      throw std::invalid_argument("a layer reads further input " + std::to_string(extra.number) +
                                  ", and there are " + std::to_string(extras_));
    }
  }
}

void DenseProgram::AddExtras(const Layer& layer) {
  for (const ExtraInput& extra : layer.extras()) {
    const ExtraInput& known = extra_inputs_.emplace(extra.number, extra).first->second;
    if (known.size != extra.size || std::strcmp(known.type, extra.type) != 0) {
      throw std::invalid_argument("layers read further input " + std::to_string(extra.number) +
                                  " as of different sizes or types");
    }
  }
}

void DenseProgram::SizeParameters() {
  std::map<ParameterPart, int64_t> sizes;  // sorted by offset, so that the parts of a parameter are
                                           // in order
  for (const auto& stage : stages_) {
    for (const auto& layer : stage) {
      for (const ParameterPart& part : layer->parameters()) {
        const int64_t known = sizes.emplace(part, part.size).first->second;
        if (known != part.size) {
          throw std::invalid_argument("layers share parts of different sizes of parameter " +
                                      std::to_string(part.parameter));
        }
      }
    }
  }
  parameter_sizes_.assign(static_cast<size_t>(parameters_), 0);
  for (const auto& [part, size] : sizes) {
    int64_t& total = parameter_sizes_[static_cast<size_t>(part.parameter)];
    if (part.offset != total) {
      throw std::invalid_argument("the parts of parameter " + std::to_string(part.parameter) +
                                  " overlap or leave elements out, at element " +
                                  std::to_string(std::min(part.offset, total)));
    }
    total += size;
  }
}

void DenseProgram::PlaceValues() {
  const auto place = [](Area area, int64_t ld, size_t element, int64_t* width) {
    const Place placed{area, *width, ld, element};
    *width += ld * static_cast<int64_t>(element) / 4;
    return placed;
  };
  const bool rounds = precision_ != Precision::kFloat32;
  const size_t rounded_size = RoundedSize(precision_);
  for (Value& value : values_) {
    const int64_t ld = LeadingDimension(value.width);
    // All values are stored for the backward pass. If only the rounded form of a value is needed,
    // only the rounded form is stored. A gradient is stored only if another stage reads it, or if
    // it is a factor of a matrix product in float32.
    if (value.only_rounded) {
      value.value = {Area::kBrief, 0, ld, 4};
      brief_width_ = std::max(brief_width_, ld);
    } else {
      value.value = place(Area::kSaved, ld, 4, &saved_width_);
    }
    const bool keeps_gradient = value.crosses_stages || (value.gradient_is_factor && !rounds);
    value.gradient = keeps_gradient ? place(Area::kGradients, ld, 4, &gradient_width_)
                                    : place(Area::kScratch, ld, 4, &scratch_width_);
    if (!rounds) continue;
    const int64_t rounded_ld = LeadingDimension(RoundUp(value.width, 32));
    if (value.is_factor) {
      value.rounded = place(Area::kSaved, rounded_ld, rounded_size, &saved_width_);
    }
    if (value.gradient_is_factor) {
      value.rounded_gradient = place(Area::kGradients, rounded_ld, rounded_size, &gradient_width_);
    }
  }
}

// Finds the values and gradients that have the same layout as a matrix of the caller. Layers read
// and write such a matrix directly, without a copy.
void DenseProgram::PlaceGiven() {
  if (precision_ != Precision::kFloat32 || device_ != nullptr) return;
  std::vector<int> uses(values_.size(), 0);  // number of uses by layers, inputs and outputs
  std::vector<bool> passed(values_.size(), false);
  for (const auto& stage : stages_) {
    for (const auto& layer : stage) {
      for (const Layer::Input& input : layer->inputs()) ++uses[input.view.value];
      for (const View& output : layer->outputs()) {
        const Value& value = values_[output.value];
        passed[output.value] = output.width == value.width && layer->passes_output();
      }
    }
  }
  for (const View& output : outputs_) ++uses[output.value];
  const auto is_whole = [&](const View& view) {
    const Value& value = values_[view.value];
    return view.width == value.width && value.value.ld == view.width;
  };
  const int inputs = static_cast<int>(inputs_.size());
  const int outputs = static_cast<int>(outputs_.size());
  for (int i = 0; i < inputs; ++i) {
    if (!is_whole(inputs_[i])) continue;
    Value& value = values_[inputs_[i].value];
    value.value.given = i;
    value.gradient.given = inputs + 2 * outputs + i;
  }
  for (int i = 0; i < outputs; ++i) {
    if (!is_whole(outputs_[i]) || !passed[outputs_[i].value] || uses[outputs_[i].value] != 1) {
      continue;
    }
    Value& value = values_[outputs_[i].value];
    value.value.given = inputs + i;
    value.gradient.given = inputs + outputs + i;
  }
}

void DenseProgram::PlanGradients() {
  // For each value, the number of columns whose gradient the backward pass has written so far.
  std::vector<int64_t> written(values_.size(), 0);
  for (const View& output : outputs_) {
    Value& value = values_[output.value];
    if (output.width == value.width && written[output.value] == 0) {
      written[output.value] = value.width;  // copied, so the gradient need not be cleared
    } else {
      value.zero_gradient = true;
    }
  }
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    for (auto layer = stage->rbegin(); layer != stage->rend(); ++layer) {
      for (Layer::Input& input : (*layer)->inputs()) {
        Value& value = values_[input.view.value];
        const bool whole = input.view.width == value.width;
        if (!(*layer)->always_adds() && whole && written[input.view.value] == 0 &&
            !value.zero_gradient) {
          written[input.view.value] = value.width;
          continue;
        }
        if (written[input.view.value] == 0) value.zero_gradient = true;
        written[input.view.value] = value.width;
        input.adds = true;
      }
    }
  }
  for (size_t v = 0; v < values_.size(); ++v) {
    if (written[v] == 0) values_[v].zero_gradient = true;
  }
}

// Layers that share a parameter add to the gradient of the parameter one after another.
void DenseProgram::PlanRounds() {
  std::map<ParameterPart, int> uses;
  std::vector<bool> used(static_cast<size_t>(parameters_), false);
  for (const auto& stage : stages_) {
    for (const auto& layer : stage) {
      int round = -1;
      for (const ParameterPart& part : layer->parameters()) {
        used.at(static_cast<size_t>(part.parameter)) = true;
        const int earlier = uses[part]++;
        if (round >= 0 && round != earlier) {
          throw std::invalid_argument("layers must share all of their parameters or none");
        }
        round = earlier;
      }
      if (round < 0) continue;
      if (static_cast<size_t>(round) >= gradient_rounds_.size()) gradient_rounds_.emplace_back();
      gradient_rounds_[round].push_back(layer.get());
    }
  }
  if (std::find(used.begin(), used.end(), false) != used.end()) {
    throw std::invalid_argument("every parameter must be of a layer");
  }
}

}  // namespace msrec
