// SPDX-License-Identifier: Apache-2.0
//
// Runs a DenseProgram: each slice of a batch passes through the layers, forward and backward.
#include <algorithm>
#include <cstring>
#include <utility>

#include "dense/device_program.h"
#include "dense/layer.h"
#include "dense/program.h"
#include "util/aligned.h"
#include "util/bytes.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

constexpr int64_t kMostSliceRows = 256;
constexpr int64_t kLeastSliceRows = 16;

}  // namespace

int64_t SliceRows(int64_t batch) {
  if (batch == 0) return kLeastSliceRows;
  if (batch > 8 * kMostSliceRows) {
    // The batch is cut into slices of equal size. The number of slices is a multiple of 8. With
    // equal slices, all threads finish at about the same time, and there are few padding rows.
    const int64_t slices = RoundUp((batch + kMostSliceRows - 1) / kMostSliceRows, 8);
    return RoundUp((batch + slices - 1) / slices, 2);
  }
  // A small batch is cut into about 8 slices.
  const int64_t even = RoundUp((batch + 7) / 8, kLeastSliceRows);
  return std::clamp(even, std::min(RoundUp(batch, kLeastSliceRows), 4 * kLeastSliceRows),
                    kMostSliceRows);
}

void SumPartials(const BatchRun& run, int64_t column, int64_t width, bool adds, float* target) {
  if (!adds) std::memset(target, 0, sizeof(float) * static_cast<size_t>(width));
  for (int64_t slice = 0; slice < run.slices; ++slice) {
    const float* sums = run.partial_sums + slice * run.partial_width + column;
    for (int64_t j = 0; j < width; ++j) target[j] += sums[j];
  }
}

void DenseProgram::Cut(BatchRun* run) const {
  run->program = this;
  run->slice_rows = SliceRows(run->batch);
  // A prediction with few rows uses one slice without padding rows. A matrix product with 16 rows
  // would take several times as long as a product with one row.
  if (!run->training && run->batch > 0 && run->batch < kLeastSliceRows)
    run->slice_rows = run->batch;
  run->slices = (run->batch + run->slice_rows - 1) / run->slice_rows;
  run->partial_width = partial_width_;
  run->loops = &ActiveElementwise();
}

namespace {

// Clears the padding rows of a slice.
void ClearBehind(const SliceRun& slice, int64_t width, const Block& block) {
  const int64_t real = slice.real_rows();
  if (real == slice.rows()) return;
  slice.loops().clear(slice.rows() - real, width, {block.row(real), block.ld});
}

// Copies rows from `from` to `to`, unless `from` and `to` are the same memory.
void CopyTo(const SliceRun& slice, int64_t width, const Block& from, const Block& to) {
  if (from.data != to.data) slice.loops().copy(slice.real_rows(), width, from, to);
}

// Scratch memory of the calling thread, kept between calls.
float* ThreadScratch(int64_t floats) {
  thread_local AlignedMemory memory;
  return static_cast<float*>(memory.AtLeast(sizeof(float) * static_cast<size_t>(floats)));
}

}  // namespace

void DenseProgram::SetGiven(BatchRun* run, const std::vector<const float*>& inputs,
                            const std::vector<float*>& outputs,
                            const std::vector<const float*>& output_gradients,
                            const std::vector<float*>& input_gradients) const {
  run->given.clear();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    run->given.push_back(const_cast<float*>(ElementOrNull(inputs, i)));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) run->given.push_back(ElementOrNull(outputs, i));
  for (size_t i = 0; i < outputs_.size(); ++i) {
    run->given.push_back(const_cast<float*>(ElementOrNull(output_gradients, i)));
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    run->given.push_back(ElementOrNull(input_gradients, i));
  }
}

void DenseProgram::Pack(const BatchRun& run) const {
  std::vector<std::pair<const Layer*, int64_t>> packs;
  for (const auto& stage : stages_) {
    for (const auto& layer : stage) {
      for (int64_t task = 0; task < layer->PackTasks(run); ++task) {
        packs.push_back({layer.get(), task});
      }
    }
  }
  ThreadPool::Global().ParallelFor(static_cast<int64_t>(packs.size()),
                                   [&](int64_t i) { packs[i].first->Pack(run, packs[i].second); });
}

void DenseProgram::Forward(BatchRun* run, const std::vector<const float*>& inputs,
                           const std::vector<float*>& outputs) const {
  Cut(run);
  if (run->batch == 0) {
    for (const auto& stage : stages_) {
      if (!stage.empty()) stage.back()->BetweenForward(*run);
    }
    return;
  }
  if (on_device_ != nullptr) {
    on_device_->Forward(*run, inputs, outputs);
    return;
  }
  Pack(*run);
  const bool keeps_inputs = run->training && !run->has_inputs;
  SetGiven(run, keeps_inputs ? std::vector<const float*>() : inputs, outputs, {}, {});
  ThreadPool& pool = ThreadPool::Global();
  // A program with one stage processes one slice after another, and keeps the values of one slice
  // per thread. With several stages, the values of all slices must be kept for the next stage.
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
      if (const uint16_t* halves = ElementOrNull(run.bfloat16_inputs, i); halves != nullptr) {
        slice.loops().widen_bfloat16(rows, width, halves + first * width, width, block);
      } else {
        CopyTo(slice, width, {const_cast<float*>(inputs[i]) + first * width, width}, block);
      }
      ClearBehind(slice, width, block);
    }
  }
  for (const auto& layer : stages_[stage]) layer->Forward(slice);
  if (stage + 1 < stages_.size()) return;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const int64_t width = outputs_[i].width;
    CopyTo(slice, width, slice.value(outputs_[i]), {outputs[i] + first * width, width});
  }
}

void DenseProgram::Release() const {
  if (on_device_ != nullptr) on_device_->Release();
}

void DenseProgram::Backward(BatchRun* run, const std::vector<const float*>& output_gradients,
                            const std::vector<float*>& input_gradients) const {
  run->training = true;
  Cut(run);
  if (on_device_ != nullptr && run->batch > 0) {
    on_device_->Backward(*run, output_gradients, input_gradients);
    return;
  }
  SetGiven(run, run->has_inputs ? run->inputs : std::vector<const float*>(), {}, output_gradients,
           input_gradients);
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
    slice.loops().clear(run.slice_rows, whole.width, slice.gradient(whole));
  }
  for (size_t i = 0; is_last && i < outputs_.size(); ++i) {
    const View& view = outputs_[i];
    const Block block = slice.gradient(view);
    const Block given{const_cast<float*>(output_gradients[i]) + first * view.width, view.width};
    if (values_[view.value].zero_gradient) {
      slice.loops().add(rows, view.width, given, block);
    } else {
      CopyTo(slice, view.width, given, block);
      ClearBehind(slice, view.width, block);
    }
  }
  const auto& layers = stages_[stage];
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) (*layer)->Backward(slice);
  for (size_t i = 0; stage == 0 && i < inputs_.size(); ++i) {
    const int64_t width = inputs_[i].width;
    const Block gradient = slice.gradient(inputs_[i]);
    if (uint16_t* halves = ElementOrNull(run.bfloat16_input_gradients, i); halves != nullptr) {
      slice.loops().round_bfloat16(rows, width, gradient, halves + first * width, width);
    } else {
      CopyTo(slice, width, gradient, {input_gradients[i] + first * width, width});
    }
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
