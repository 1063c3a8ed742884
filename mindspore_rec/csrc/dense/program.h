// SPDX-License-Identifier: Apache-2.0
//
// DenseProgram: the layers of one cell (a perceptron, a cross network, a mixture of experts), run
// as one operator forward and one backward.
//
// A program works on values: matrices of a row a sample. A layer reads columns of values and writes
// columns of others. A batch is cut in slices of rows, by its size alone; a task takes one slice
// through all layers of a stage, so that what one layer writes is in the cache when the next one
// reads it:
//
//   forward:   pack the weights | each stage: all slices
//   backward:  each stage, from the last: all slices | gradients of parameters, in tiles
//
// A stage ends where a layer needs something of all rows (batch normalization). Which thread takes
// which task changes no bit: slices and tiles follow from the batch's size, and what slices add up
// is added in their order.
//
// Memory is the caller's: `saved` (values that the backward pass needs), `packed` (weights as
// products want them) and `gradients` (gradients that a later stage needs) are outputs of the
// operators; the rest is scratch of the thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dense/batch_share.h"
#include "dense/dense_device.h"
#include "dense/elementwise.h"
#include "dense/onednn.h"

namespace msrec {

class Layer;
class DenseProgram;
class DeviceProgram;
class SliceRun;

// Arithmetic of products: float32; bfloat16; or, where the processor has no fast bfloat16, float32
// of factors rounded to bfloat16.
enum class Precision : int32_t { kFloat32 = 0, kBFloat16, kRoundedFloat32 };

// Bytes of an element of a rounded matrix.
inline size_t RoundedSize(Precision precision) { return precision == Precision::kBFloat16 ? 2 : 4; }

// Columns of a value.
struct View {
  int value = -1;
  int64_t offset = 0;
  int64_t width = 0;
};

// A factor of a product.
struct Factor {
  const void* data = nullptr;
  int64_t ld = 0;
};

// A further input, which has no gradient.
struct ExtraInput {
  int number = -1;
  int64_t size = 0;  // elements
  const char* type = "float32";
};

// The memory of one call, and its batch.
struct BatchRun {
  const DenseProgram* program = nullptr;
  // The device that the program runs on, null on the host, and the loops there.
  DenseDevice* device = nullptr;
  const Elementwise* loops = nullptr;
  DeviceMemory* temporary = nullptr;  // of a device
  bool training = false;              // whether what is saved is kept for a backward pass
  int64_t batch = 0;
  // Where other workers have rows of the batch, too: this one's share, and the number of its first
  // row among all.
  BatchShare* share = nullptr;
  int64_t first_row = 0;
  int64_t slice_rows = 0;
  int64_t slices = 0;
  float* saved = nullptr;
  char* packed = nullptr;
  float* gradients = nullptr;
  float* partial_sums = nullptr;  // [slices, partial_width], cleared
  int64_t partial_width = 0;
  std::vector<const float*> parameters;
  std::vector<const void*> extras;  // inputs without a gradient: masks, and on the host counters
  char* rounded = nullptr;          // rounded weights, on a device
  std::vector<float*> parameter_gradients;
  // Inputs in bfloat16, and gradients of inputs that are rounded to it: by number of the input,
  // null or left out where it is float32.
  std::vector<const uint16_t*> bfloat16_inputs;
  std::vector<uint16_t*> bfloat16_input_gradients;

  int64_t padded() const { return slices * slice_rows; }
};

// Returns element i, or null if there is none.
template <typename T>
T* ElementOrNull(const std::vector<T*>& all, size_t i) {
  return i < all.size() ? all[i] : nullptr;
}

// Rows of a batch's slices: at most 256, so that a slice's values stay in the cache and there are
// enough slices for many threads. Fewer for small batches, and for batches whose slices of 256
// would leave threads idle at the end. A multiple of 16; of 2 for batches of more than 2048 rows,
// which are cut into slices of even size.
int64_t SliceRows(int64_t batch);

class DenseProgram {
 public:
  explicit DenseProgram(Precision precision);
  ~DenseProgram();

  // ---- construction: values and layers in the order in which they are computed. What describes no
  // program throws std::invalid_argument: each column of a value is written once, before it is
  // read.

  Precision precision() const { return precision_; }
  // The device that the program runs on; null: the host.
  DenseDevice* device() const { return device_.get(); }
  FactorType factor_type() const {
    return precision_ == Precision::kBFloat16 ? FactorType::kBFloat16 : FactorType::kFloat32;
  }
  int AddValue(int64_t width);
  View Whole(int value) const { return {value, 0, values_[value].width}; }
  // Reads an input tensor [B, view.width] into columns of a value.
  void AddInput(const View& view);
  // Returns columns of a value as an output tensor [B, view.width].
  void AddOutput(const View& view);
  void AddLayer(std::unique_ptr<Layer> layer);
  // Ends a stage after the last layer.
  void EndStage();
  // Lays the memory out, for so many parameters and further inputs; layers cannot be added any
  // more.
  void Finish(int parameters, int extras);

  // For layers, while they are added.
  int64_t AddPartialSums(int64_t floats);  // returns their column
  int64_t AddPacked(size_t bytes);         // returns their offset
  int64_t AddRounded(size_t bytes);        // returns their offset in a device's memory
  // Notes that products read a value, or its gradient.
  void UseAsFactor(int value) { values_[value].is_factor = true; }
  void UseGradientAsFactor(int value) { values_[value].gradient_is_factor = true; }

  // ---- shape of the memory

  int inputs() const { return static_cast<int>(inputs_.size()); }
  int outputs() const { return static_cast<int>(outputs_.size()); }
  int parameters() const { return parameters_; }
  int extras() const { return extras_; }
  int64_t input_width(int i) const { return inputs_[i].width; }
  int64_t output_width(int i) const { return outputs_[i].width; }
  // Elements of a parameter.
  int64_t parameter_size(int i) const { return parameter_sizes_[i]; }
  // The further inputs that layers read, by their numbers.
  const std::map<int, ExtraInput>& extra_inputs() const { return extra_inputs_; }
  // Floats a row. On a device the memory is the device's: the host's `saved` names it.
  int64_t saved_width() const { return device_ != nullptr ? kNameWidth : saved_width_; }
  int64_t gradient_width() const { return device_ != nullptr ? 0 : gradient_width_; }
  int64_t packed_bytes() const { return packed_bytes_; }

  // ---- runs

  // Those of inputs that `run` has in bfloat16 are not read. Slices are widened, and gradients
  // rounded, in the cache.

  // Computes the outputs. `run` has batch, saved (in training), packed, parameters and extras.
  // Without training, values are kept for the time of the call.
  void Forward(BatchRun* run, const std::vector<const float*>& inputs,
               const std::vector<float*>& outputs) const;
  // Gives back what it holds of a device's memory between runs.
  void Release() const;
  // Computes the gradients of inputs and parameters; `run` has what `Forward` filled, too.
  void Backward(BatchRun* run, const std::vector<const float*>& output_gradients,
                const std::vector<float*>& input_gradients) const;

 private:
  friend class DeviceProgram;
  friend class SliceRun;

  static constexpr int64_t kNameWidth = 16;

  // kBrief: scratch that several values share, each for the time of one layer.
  enum class Area { kNone, kSaved, kGradients, kScratch, kBrief };

  // A matrix of a value: at `column` floats of each row of an area, blocks of [rows, ld].
  struct Place {
    Area area = Area::kNone;
    int64_t column = 0;
    int64_t ld = 0;      // elements
    size_t element = 4;  // bytes
  };

  struct Value {
    int64_t width = 0;
    int stage = 0;              // in which it is written
    std::vector<bool> written;  // each column
    bool crosses_stages = false;
    bool is_factor = false;
    bool gradient_is_factor = false;
    bool only_rounded = false;
    bool zero_gradient = false;  // whether its gradient is cleared before it is added to
    Place value, rounded, gradient, rounded_gradient;
  };

  void FindOnlyRounded();
  void CheckView(const View& view) const;
  void CheckWritten(const View& view) const;
  void Write(const View& view);
  void CheckLayer(const Layer& layer) const;
  void AddExtras(const Layer& layer);
  void SizeParameters();
  void PlaceValues();
  void PlanGradients();
  void PlanRounds();
  void Cut(BatchRun* run) const;
  void Pack(const BatchRun& run) const;
  void ForwardSlice(const BatchRun& run, size_t stage, const SliceRun& slice,
                    const std::vector<const float*>& inputs,
                    const std::vector<float*>& outputs) const;
  void BackwardSlice(const BatchRun& run, size_t stage, const SliceRun& slice,
                     const std::vector<const float*>& output_gradients,
                     const std::vector<float*>& input_gradients) const;
  void ParameterGradients(const BatchRun& run) const;
  void* At(const BatchRun& run, int64_t slice, float* scratch, const Place& place) const;

  const Precision precision_;
  const std::shared_ptr<DenseDevice> device_;
  std::unique_ptr<DeviceProgram> on_device_;
  std::vector<Value> values_;
  std::vector<View> inputs_, outputs_;
  std::vector<std::vector<std::unique_ptr<Layer>>> stages_;
  std::vector<std::vector<const Layer*>> gradient_rounds_;  // layers that share no parameter
  int parameters_ = 0;
  int extras_ = 0;
  std::map<int, ExtraInput> extra_inputs_;
  std::vector<int64_t> parameter_sizes_;
  int64_t saved_width_ = 0;
  int64_t gradient_width_ = 0;
  int64_t scratch_width_ = 0;  // of a backward pass
  int64_t brief_width_ = 0;
  int64_t partial_width_ = 0;
  int64_t packed_bytes_ = 0;
  int64_t rounded_bytes_ = 0;
};

// A slice of the batch, with its scratch.
class SliceRun {
 public:
  SliceRun(const BatchRun& run, int64_t slice, float* scratch)
      : run_(run), slice_(slice), scratch_(scratch) {}

  const BatchRun& run() const { return run_; }
  const Elementwise& loops() const { return *run_.loops; }
  int64_t slice() const { return slice_; }
  int64_t rows() const { return run_.slice_rows; }
  int64_t first_row() const { return slice_ * run_.slice_rows; }
  // Number of rows that are of the batch; those after them are there to fill the slice.
  int64_t real_rows() const;

  Block value(const View& view) const;
  Block gradient(const View& view) const;
  // The columns as a factor of a product: rounded where the precision asks for it.
  Factor factor(const View& view) const;
  Factor gradient_factor(const View& view) const;
  // Their leading dimensions, without the memory.
  int64_t value_ld(const View& view) const;
  int64_t gradient_ld(const View& view) const;
  int64_t factor_ld(const View& view) const;
  int64_t gradient_factor_ld(const View& view) const;
  // Whether the value is kept rounded alone: the layer that writes it rounds it, and its float32
  // form is gone after that layer.
  bool only_rounded(const View& view) const;
  // Rounds a value or a gradient for products; nothing in float32.
  void RoundValue(const View& view) const;
  void RoundGradient(const View& view) const;
  // Sums of this slice, floats of the layer that asked for them.
  float* partial_sums(int64_t column) const;
  // Memory for one call of a layer, as long as it asks for no other.
  float* Temporary(int64_t floats) const;

 private:
  using Place = DenseProgram::Place;

  Block BlockAt(const Place& place, int64_t column) const;
  Factor FactorAt(const Place& place, int64_t column) const;
  const DenseProgram::Value& value_of(const View& view) const;
  const Place& factor_place(const View& view) const;
  const Place& gradient_factor_place(const View& view) const;

  const BatchRun& run_;
  const int64_t slice_;
  float* const scratch_;
};

}  // namespace msrec
