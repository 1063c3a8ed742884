// SPDX-License-Identifier: Apache-2.0
#include "dense/program.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <utility>

#include "dense/layer.h"
#include "util/aligned.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

constexpr int64_t kMostRows = 256;
constexpr int64_t kLeastRows = 16;
constexpr int64_t kMostWidth = int64_t{1} << 28;

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Bytes of an element of a rounded matrix.
size_t RoundedSize(Precision precision) { return precision == Precision::kBFloat16 ? 2 : 4; }

void CopyRows(const float* from, int64_t from_ld, int64_t rows, int64_t width, float* to,
              int64_t to_ld) {
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * to_ld, from + r * from_ld, sizeof(float) * static_cast<size_t>(width));
  }
}

void ZeroRows(const Block& block, int64_t from, int64_t to, int64_t width) {
  for (int64_t r = from; r < to; ++r) {
    std::memset(block.row(r), 0, sizeof(float) * static_cast<size_t>(width));
  }
}

}  // namespace

int64_t SliceRows(int64_t batch) {
  if (batch == 0) return kLeastRows;
  // About 8 slices of a small batch.
  const int64_t even = RoundUp((batch + 7) / 8, kLeastRows);
  return std::clamp(even, std::min(RoundUp(batch, kLeastRows), 4 * kLeastRows), kMostRows);
}

void SumPartials(const BatchRun& run, int64_t column, int64_t width, bool adds, float* target) {
  if (!adds) std::memset(target, 0, sizeof(float) * static_cast<size_t>(width));
  for (int64_t slice = 0; slice < run.slices; ++slice) {
    const float* sums = run.partial_sums + slice * run.partial_width + column;
    for (int64_t j = 0; j < width; ++j) target[j] += sums[j];
  }
}

// ---------------------------------------------------------------- slices

int64_t SliceRun::real_rows() const {
  return std::clamp<int64_t>(run_.batch - first_row(), 0, rows());
}

Block SliceRun::value(const View& view) const {
  const DenseProgram& program = *run_.program;
  const auto& place = program.values_[view.value].value;
  auto* data = static_cast<float*>(program.At(run_, slice_, scratch_, place));
  return {data + view.offset, place.ld};
}

Block SliceRun::gradient(const View& view) const {
  const DenseProgram& program = *run_.program;
  const auto& place = program.values_[view.value].gradient;
  auto* data = static_cast<float*>(program.At(run_, slice_, scratch_, place));
  return {data + view.offset, place.ld};
}

Factor SliceRun::factor(const View& view) const {
  const DenseProgram& program = *run_.program;
  const auto& value = program.values_[view.value];
  if (program.precision_ == Precision::kFloat32) {
    const Block block = this->value(view);
    return {block.data, block.ld};
  }
  auto* data = static_cast<char*>(program.At(run_, slice_, scratch_, value.rounded));
  return {data + static_cast<size_t>(view.offset) * RoundedSize(program.precision_),
          value.rounded.ld};
}

Factor SliceRun::gradient_factor(const View& view) const {
  const DenseProgram& program = *run_.program;
  const auto& value = program.values_[view.value];
  if (program.precision_ == Precision::kFloat32) {
    const Block block = gradient(view);
    return {block.data, block.ld};
  }
  auto* data = static_cast<char*>(program.At(run_, slice_, scratch_, value.rounded_gradient));
  return {data + static_cast<size_t>(view.offset) * RoundedSize(program.precision_),
          value.rounded_gradient.ld};
}

namespace {

void Round(Precision precision, int64_t rows, int64_t width, const Block& from, const Factor& to) {
  const Elementwise& elementwise = ActiveElementwise();
  if (precision == Precision::kBFloat16) {
    auto* data = static_cast<uint16_t*>(const_cast<void*>(to.data));
    elementwise.round_bfloat16(rows, width, from, data, to.ld);
  } else {
    auto* data = static_cast<float*>(const_cast<void*>(to.data));
    elementwise.round_to_float(rows, width, from, {data, to.ld});
  }
}

}  // namespace

bool SliceRun::only_rounded(const View& view) const {
  return run_.program->values_[view.value].only_rounded;
}

void SliceRun::RoundValue(const View& view) const {
  if (run_.program->precision_ == Precision::kFloat32) return;
  Round(run_.program->precision_, rows(), view.width, value(view), factor(view));
}

void SliceRun::RoundGradient(const View& view) const {
  if (run_.program->precision_ == Precision::kFloat32) return;
  Round(run_.program->precision_, rows(), view.width, gradient(view), gradient_factor(view));
}

int64_t SliceRun::value_ld(const View& view) const {
  return run_.program->values_[view.value].value.ld;
}

int64_t SliceRun::gradient_ld(const View& view) const {
  return run_.program->values_[view.value].gradient.ld;
}

int64_t SliceRun::factor_ld(const View& view) const {
  const auto& value = run_.program->values_[view.value];
  return run_.program->precision_ == Precision::kFloat32 ? value.value.ld : value.rounded.ld;
}

int64_t SliceRun::gradient_factor_ld(const View& view) const {
  const auto& value = run_.program->values_[view.value];
  return run_.program->precision_ == Precision::kFloat32 ? value.gradient.ld
                                                         : value.rounded_gradient.ld;
}

float* SliceRun::partial_sums(int64_t column) const {
  return run_.partial_sums + slice_ * run_.partial_width + column;
}

// ---------------------------------------------------------------- construction

DenseProgram::DenseProgram(Precision precision) : precision_(precision), stages_(1) {}

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
  if (value.stage != 0) value.crosses_stages = true;  // inputs are written in the first stage
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
  for (const auto& stage : stages_) {
    for (const auto& layer : stage) CheckLayer(*layer);
  }
  for (const View& output : outputs_) {
    CheckWritten(output);
    // Inputs are read in the first stage, outputs written in the last.
    if (values_[output.value].stage + 1 != static_cast<int>(stages_.size())) {
      values_[output.value].crosses_stages = true;
    }
  }
  FindOnlyRounded();
  SizeParameters();
  PlaceValues();
  PlanGradients();
  PlanRounds();
}

// A value that products alone read need not be kept in float32.
void DenseProgram::FindOnlyRounded() {
  if (precision_ == Precision::kFloat32) return;
  std::vector<int> writers(values_.size(), 0);
  std::vector<bool> others(values_.size(), false);  // whether something else uses the value
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
  for (const int extra : layer.extras()) {
    if (extra < 0 || extra >= extras_) {
      throw std::invalid_argument("a layer reads further input " + std::to_string(extra) +
                                  ", and there are " + std::to_string(extras_));
    }
  }
}

void DenseProgram::SizeParameters() {
  std::map<ParameterPart, int64_t> sizes;  // by offset: those of a parameter in their order
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
    if (size == 0 || total < 0) {
      total = -1;
      continue;
    }
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
    // All values are kept for the backward pass; their gradients where all rows are needed.
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

void DenseProgram::PlanGradients() {
  // Which columns of a value's gradient have been written so far in the backward pass.
  std::vector<int64_t> written(values_.size(), 0);
  for (const View& output : outputs_) {
    Value& value = values_[output.value];
    if (output.width == value.width && written[output.value] == 0) {
      written[output.value] = value.width;  // copied, and so need not be cleared
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

// Layers that share a parameter add to its gradient one after the other.
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

// ---------------------------------------------------------------- runs

void* DenseProgram::At(const BatchRun& run, int64_t slice, float* scratch,
                       const Place& place) const {
  float* base = nullptr;
  switch (place.area) {
    case Area::kNone:
      throw std::logic_error("a dense program has no memory for a matrix that a layer uses");
    case Area::kScratch:
      return scratch + place.column * run.slice_rows;
    case Area::kBrief:
      return scratch + (run.saved != nullptr ? 0 : saved_width_ * run.slice_rows);
    case Area::kSaved:
      if (run.saved == nullptr) return scratch + place.column * run.slice_rows;
      base = run.saved;
      break;
    case Area::kGradients:
      base = run.gradients;
  }
  const size_t row_bytes = static_cast<size_t>(place.ld) * place.element;
  return reinterpret_cast<char*>(base + place.column * run.padded()) +
         static_cast<size_t>(slice * run.slice_rows) * row_bytes;
}

void DenseProgram::Cut(BatchRun* run) const {
  run->program = this;
  run->slice_rows = SliceRows(run->batch);
  run->slices = (run->batch + run->slice_rows - 1) / run->slice_rows;
  run->partial_width = partial_width_;
}

namespace {

// Scratch of the calling thread, kept between calls.
float* ThreadScratch(int64_t floats) {
  thread_local AlignedMemory memory;
  return static_cast<float*>(memory.AtLeast(sizeof(float) * static_cast<size_t>(floats)));
}

}  // namespace

void DenseProgram::Forward(BatchRun* run, const std::vector<const float*>& inputs,
                           const std::vector<float*>& outputs) const {
  Cut(run);
  if (run->batch == 0) {
    for (const auto& stage : stages_) {
      if (!stage.empty()) stage.back()->BetweenForward(*run);
    }
    return;
  }
  std::vector<std::pair<const Layer*, int64_t>> packs;
  for (const auto& stage : stages_) {
    for (const auto& layer : stage) {
      for (int64_t task = 0; task < layer->PackTasks(); ++task)
        packs.push_back({layer.get(), task});
    }
  }
  ThreadPool& pool = ThreadPool::Global();
  pool.ParallelFor(static_cast<int64_t>(packs.size()),
                   [&](int64_t i) { packs[i].first->Pack(*run, packs[i].second); });
  // Values of one stage stay in the thread's cache; those of several must wait for all slices.
  AlignedMemory kept;
  if (!run->training && stages_.size() > 1) {
    const int64_t floats = saved_width_ * run->padded();
    run->saved = static_cast<float*>(kept.AtLeast(sizeof(float) * static_cast<size_t>(floats)));
  }
  std::vector<float> partial_sums;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    if (stages_.size() > 1) {
      partial_sums.assign(static_cast<size_t>(run->slices * partial_width_), 0.0f);
      run->partial_sums = partial_sums.data();
    }
    pool.ParallelFor(run->slices, [&](int64_t i) {
      const int64_t width = (run->saved != nullptr ? 0 : saved_width_) + brief_width_;
      float* scratch = ThreadScratch(width * run->slice_rows);
      ForwardSlice(*run, stage, SliceRun(*run, i, scratch), inputs, outputs);
    });
    if (!stages_[stage].empty()) stages_[stage].back()->BetweenForward(*run);
  }
  if (!run->training) run->saved = nullptr;
}

void DenseProgram::ForwardSlice(const BatchRun& run, size_t stage, const SliceRun& slice,
                                const std::vector<const float*>& inputs,
                                const std::vector<float*>& outputs) const {
  const int64_t first = slice.first_row();
  const int64_t rows = slice.real_rows();
  if (stage == 0) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const int64_t width = inputs_[i].width;
      const Block block = slice.value(inputs_[i]);
      CopyRows(inputs[i] + first * width, width, rows, width, block.data, block.ld);
      ZeroRows(block, rows, run.slice_rows, width);
    }
  }
  for (const auto& layer : stages_[stage]) layer->Forward(slice);
  if (stage + 1 < stages_.size()) return;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const int64_t width = outputs_[i].width;
    const Block block = slice.value(outputs_[i]);
    CopyRows(block.data, block.ld, rows, width, outputs[i] + first * width, width);
  }
}

void DenseProgram::Backward(BatchRun* run, const std::vector<const float*>& output_gradients,
                            const std::vector<float*>& input_gradients) const {
  Cut(run);
  run->training = true;
  std::vector<float> partial_sums(static_cast<size_t>(run->slices * partial_width_), 0.0f);
  run->partial_sums = partial_sums.data();
  for (size_t stage = stages_.size(); stage-- > 0;) {
    ThreadPool::Global().ParallelFor(run->slices, [&](int64_t i) {
      float* scratch = ThreadScratch(scratch_width_ * run->slice_rows);
      BackwardSlice(*run, stage, SliceRun(*run, i, scratch), output_gradients, input_gradients);
    });
    if (stage > 0 && !stages_[stage - 1].empty()) stages_[stage - 1].back()->BetweenBackward(*run);
  }
  ParameterGradients(*run);
}

void DenseProgram::BackwardSlice(const BatchRun& run, size_t stage, const SliceRun& slice,
                                 const std::vector<const float*>& output_gradients,
                                 const std::vector<float*>& input_gradients) const {
  const int64_t first = slice.first_row();
  const int64_t rows = slice.real_rows();
  const bool is_last = stage + 1 == stages_.size();
  for (size_t v = 0; v < values_.size(); ++v) {
    const Value& value = values_[v];
    const bool is_local = value.gradient.area == Area::kScratch;
    if (!value.zero_gradient || (is_local ? value.stage != static_cast<int>(stage) : !is_last)) {
      continue;
    }
    const View whole = Whole(static_cast<int>(v));
    ZeroRows(slice.gradient(whole), 0, run.slice_rows, whole.width);
  }
  for (size_t i = 0; is_last && i < outputs_.size(); ++i) {
    const View& view = outputs_[i];
    const Block block = slice.gradient(view);
    const float* given = output_gradients[i] + first * view.width;
    if (values_[view.value].zero_gradient) {
      const Block from{const_cast<float*>(given), view.width};
      ActiveElementwise().add(rows, view.width, from, block);
    } else {
      CopyRows(given, view.width, rows, view.width, block.data, block.ld);
      ZeroRows(block, rows, run.slice_rows, view.width);
    }
  }
  const auto& layers = stages_[stage];
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) (*layer)->Backward(slice);
  for (size_t i = 0; stage == 0 && i < inputs_.size(); ++i) {
    const int64_t width = inputs_[i].width;
    const Block block = slice.gradient(inputs_[i]);
    CopyRows(block.data, block.ld, rows, width, input_gradients[i] + first * width, width);
  }
}

void DenseProgram::ParameterGradients(const BatchRun& run) const {
  for (size_t round = 0; round < gradient_rounds_.size(); ++round) {
    std::vector<std::pair<const Layer*, int64_t>> tasks;
    for (const Layer* layer : gradient_rounds_[round]) {
      for (int64_t i = 0; i < layer->GradientTasks(run); ++i) tasks.push_back({layer, i});
    }
    ThreadPool::Global().ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
      tasks[i].first->Gradient(run, tasks[i].second, round > 0);
    });
  }
}

}  // namespace msrec
