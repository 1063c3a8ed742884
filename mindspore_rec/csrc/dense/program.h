// SPDX-License-Identifier: Apache-2.0
//
// DenseProgram: the layers of one cell (a perceptron, a cross network, a mixture of experts). The
// layers run as one forward operator and one backward operator.
//
// A program works on values: matrices with one row per sample. A layer reads columns of values and
// writes columns of other values. A batch is cut into slices of rows; the slices depend only on the
// size of the batch. A task takes one slice through all layers of a stage, so that the output of
// one layer is still in the cache when the next layer reads it:
//
//   forward:   pack the weights | each stage: all slices
//   backward:  each stage, from the last: all slices | gradients of parameters, in tiles
//
// A layer that needs all rows, such as a batch normalization, ends a stage. The results are
// identical, bit for bit, regardless of which thread runs which task. Slices and tiles depend only
// on the batch's size, and the sums of slices are added in slice order.
//
// The caller provides three areas of memory, which are outputs of the operators. `saved` stores
// values for the backward pass. `packed` stores weights in the layout that matrix products need.
// `gradients` stores two kinds of gradients: gradients that another stage reads, and gradients from
// which the gradients of weights are computed. All other values and gradients are in scratch memory
// of the thread that runs a slice.
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

// Number type of the factors of matrix products: float32 or bfloat16. If bfloat16 is not fast on
// this processor, factors are rounded to bfloat16 and then multiplied in float32.
enum class Precision : int32_t { kFloat32 = 0, kBFloat16, kRoundedFloat32 };

// Number of bytes per element of a rounded matrix.
inline size_t RoundedSize(Precision precision) { return precision == Precision::kBFloat16 ? 2 : 4; }

// Columns of a value.
struct View {
  int value = -1;
  int64_t offset = 0;
  int64_t width = 0;
};

// A factor of a matrix product.
struct Factor {
  const void* data = nullptr;
  int64_t ld = 0;
};

// An extra input, which has no gradient.
struct ExtraInput {
  int number = -1;
  int64_t size = 0;  // elements
  const char* type = "float32";
};

// The batch of one call of a program, and the memory for the call.
struct BatchRun {
  const DenseProgram* program = nullptr;
  // The device that runs the program, or null if the host runs the program. `loops` contains the
  // loops for this device.
  DenseDevice* device = nullptr;
  const Elementwise* loops = nullptr;
  DeviceMemory* temporary = nullptr;  // temporary memory of a device
  bool training = false;              // true if the saved values are kept for a backward pass
  int64_t batch = 0;
  // If several workers share the batch, `share` is this worker's share, and `first_row` is the
  // index of this worker's first row in the whole batch.
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
  std::vector<const void*> extras;  // inputs without a gradient: masks and, on the host, counters
  char* rounded = nullptr;          // rounded weights in a device's memory
  std::vector<float*> parameter_gradients;
  // bfloat16 inputs, and bfloat16 arrays for the gradients of inputs. Each vector has one entry per
  // input. The entry of a float32 input is null or missing.
  std::vector<const uint16_t*> bfloat16_inputs;
  std::vector<uint16_t*> bfloat16_input_gradients;
  // True if the backward pass also gets the inputs of the forward pass, in `inputs`. If has_inputs
  // is true, the program does not copy the inputs.
  bool has_inputs = false;
  std::vector<const float*> inputs;
  // The caller's matrices that layers read and write directly, without a copy: inputs, outputs,
  // gradients of outputs, gradients of inputs. An entry is null if the caller does not pass the
  // matrix.
  std::vector<float*> given;

  int64_t padded() const { return slices * slice_rows; }
};

// Returns element i, or null if there is no element i.
template <typename T>
T* ElementOrNull(const std::vector<T*>& all, size_t i) {
  return i < all.size() ? all[i] : nullptr;
}

// Number of rows in a slice. A slice has at most 256 rows, so that a slice's values stay in the
// cache and many threads get slices. Slices are smaller for small batches. Slices are also smaller
// if slices of 256 rows would leave threads idle at the end of the batch. For batches of at most
// 2048 rows, the number of rows in a slice is a multiple of 16. Batches of more than 2048 rows are
// cut into equal slices, whose number of rows is a multiple of 2.
int64_t SliceRows(int64_t batch);

class DenseProgram {
 public:
  explicit DenseProgram(Precision precision);
  ~DenseProgram();

  // ---- construction: the caller adds values and layers in the order of computation. Each column
  // of a value must be written exactly once, before any layer reads the column. For an invalid
  // program, the methods below throw std::invalid_argument.

  Precision precision() const { return precision_; }
  // The device that runs the program, or null if the host runs the program.
  DenseDevice* device() const { return device_.get(); }
  FactorType factor_type() const {
    return precision_ == Precision::kBFloat16 ? FactorType::kBFloat16 : FactorType::kFloat32;
  }
  int AddValue(int64_t width);
  View Whole(int value) const { return {value, 0, values_[value].width}; }
  // Adds an input tensor [B, view.width], whose columns are the columns of `view`.
  void AddInput(const View& view);
  // Adds an output tensor [B, view.width], into which columns of a value are copied.
  void AddOutput(const View& view);
  void AddLayer(std::unique_ptr<Layer> layer);
  // Ends the current stage after the layer that was added last.
  void EndStage();
  // Lays out the memory of the program. The arguments are the number of parameters and the number
  // of extra inputs. After Finish, no layer can be added.
  void Finish(int parameters, int extras);

  // Functions that a layer calls while the program adds the layer.
  int64_t AddPartialSums(int64_t floats);  // returns their column
  int64_t AddPacked(size_t bytes);         // returns their offset
  int64_t AddRounded(size_t bytes);        // returns their offset in a device's memory
  // Records that matrix products use a value, or the gradient of a value, as a factor.
  void UseAsFactor(int value) { values_[value].is_factor = true; }
  void UseGradientAsFactor(int value) { values_[value].gradient_is_factor = true; }

  // ---- shape of the memory

  int inputs() const { return static_cast<int>(inputs_.size()); }
  int outputs() const { return static_cast<int>(outputs_.size()); }
  int parameters() const { return parameters_; }
  int extras() const { return extras_; }
  int64_t input_width(int i) const { return inputs_[i].width; }
  int64_t output_width(int i) const { return outputs_[i].width; }
  // Number of elements of a parameter.
  int64_t parameter_size(int i) const { return parameter_sizes_[i]; }
  // Returns the extra inputs that layers read; the map's key is the number of the extra input.
  const std::map<int, ExtraInput>& extra_inputs() const { return extra_inputs_; }
  // Floats per row. If the program runs on a device, the saved values are in the device's memory.
  // If the program runs on a device, the host's array `saved` contains only the number of the
  // forward pass.
  int64_t saved_width() const { return device_ != nullptr ? kNameWidth : saved_width_; }
  int64_t gradient_width() const { return device_ != nullptr ? 0 : gradient_width_; }
  int64_t packed_bytes() const { return packed_bytes_; }

  // ---- runs

  // If `run` has an input in bfloat16, the input's entry in `inputs` is ignored. Each slice of a
  // bfloat16 input is converted to float32 while the slice is in the processor's cache. Each slice
  // of the input's gradient is rounded to bfloat16 while the slice is in the cache.

  // Computes the outputs. The caller sets `batch`, `packed`, `parameters` and `extras` in `run`,
  // and for training also `training` and `saved`. In a prediction, values are stored only during
  // the call.
  void Forward(BatchRun* run, const std::vector<const float*>& inputs,
               const std::vector<float*>& outputs) const;
  // Frees the device memory that the program keeps between runs.
  void Release() const;
  // Computes the gradients of inputs and parameters. The caller sets `gradients` and
  // `parameter_gradients` in `run`, and the same fields as for `Forward`. `packed` and `saved` must
  // be the memory that `Forward` has filled.
  void Backward(BatchRun* run, const std::vector<const float*>& output_gradients,
                const std::vector<float*>& input_gradients) const;

 private:
  friend class DeviceProgram;
  friend class SliceRun;

  static constexpr int64_t kNameWidth = 16;

  // kBrief is scratch memory for values that are needed only while one layer runs. All values in
  // kBrief use the same memory.
  enum class Area { kNone, kSaved, kGradients, kScratch, kBrief };

  // The position of a value's matrix [rows, ld] in the memory of `area`. Matrices in an area lie
  // one after another. `column` is the number of floats per row in all matrices before this matrix.
  struct Place {
    Area area = Area::kNone;
    int64_t column = 0;
    int64_t ld = 0;      // elements
    size_t element = 4;  // bytes
    // Index of the caller's matrix in BatchRun::given, or -1. If the caller passes the matrix, a
    // slice without padding rows reads and writes the caller's matrix, and not the area. A slice
    // with padding rows always uses the area.
    int given = -1;
  };

  struct Value {
    int64_t width = 0;
    int stage = 0;              // the stage that writes the value
    std::vector<bool> written;  // one entry per column
    bool crosses_stages = false;
    bool is_factor = false;
    bool gradient_is_factor = false;
    bool only_rounded = false;
    bool zero_gradient = false;  // true if the gradient must be cleared before layers add to it
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
  void PlaceGiven();
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
  void SetGiven(BatchRun* run, const std::vector<const float*>& inputs,
                const std::vector<float*>& outputs,
                const std::vector<const float*>& output_gradients,
                const std::vector<float*>& input_gradients) const;

  const Precision precision_;
  const std::shared_ptr<DenseDevice> device_;
  std::unique_ptr<DeviceProgram> on_device_;
  std::vector<Value> values_;
  std::vector<View> inputs_, outputs_;
  std::vector<std::vector<std::unique_ptr<Layer>>> stages_;
  std::vector<std::vector<const Layer*>> gradient_rounds_;  // each round has layers that share no
                                                            // parameter
  int parameters_ = 0;
  int extras_ = 0;
  std::map<int, ExtraInput> extra_inputs_;
  std::vector<int64_t> parameter_sizes_;
  int64_t saved_width_ = 0;
  int64_t gradient_width_ = 0;
  int64_t scratch_width_ = 0;  // width of the scratch memory of a backward pass
  int64_t brief_width_ = 0;
  int64_t partial_width_ = 0;
  int64_t packed_bytes_ = 0;
  int64_t rounded_bytes_ = 0;
};

// A slice of the batch and the scratch memory of the slice.
class SliceRun {
 public:
  SliceRun(const BatchRun& run, int64_t slice, float* scratch)
      : run_(run), slice_(slice), scratch_(scratch) {}

  const BatchRun& run() const { return run_; }
  const Elementwise& loops() const { return *run_.loops; }
  int64_t slice() const { return slice_; }
  int64_t rows() const { return run_.slice_rows; }
  int64_t first_row() const { return slice_ * run_.slice_rows; }
  // Returns the number of rows that belong to the batch. The remaining rows of the slice are
  // padding.
  int64_t real_rows() const;

  Block value(const View& view) const;
  Block gradient(const View& view) const;
  // Return columns of a value or of a gradient as a factor of a matrix product. The numbers are
  // rounded if the precision requires rounding.
  Factor factor(const View& view) const;
  Factor gradient_factor(const View& view) const;
  // Return the leading dimensions of the blocks and factors. The *_ld methods work even if the
  // SliceRun has no memory.
  int64_t value_ld(const View& view) const;
  int64_t gradient_ld(const View& view) const;
  int64_t factor_ld(const View& view) const;
  int64_t gradient_factor_ld(const View& view) const;
  // True if the value is stored only in rounded form. The layer that writes the value also rounds
  // the value, and does not keep the float32 numbers.
  bool only_rounded(const View& view) const;
  // Rounds a value or a gradient for matrix products. Does nothing in float32.
  void RoundValue(const View& view) const;
  void RoundGradient(const View& view) const;
  // Returns the address of this slice's partial sums. The argument `column` is a result of
  // AddPartialSums.
  float* partial_sums(int64_t column) const;
  // Returns temporary memory for one call of a layer, valid until the next call of Temporary.
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
