// SPDX-License-Identifier: Apache-2.0
#include "dense_model.h"

#include <algorithm>
#include <cmath>

#include "dense/linear.h"
#include "dense/row_layers.h"

namespace msrec {
namespace {

using Rows = std::vector<double>;  // of one sample, or of one value

// ---------------------------------------------------------------- random programs

class Writer {
 public:
  Writer(Rng* rng, Precision precision, bool smooth) : rng_(rng), smooth_(smooth) {
    text_.precision = precision;
  }

  ProgramText Write() {
    for (uint64_t i = 0; i < 1 + rng_->Below(2); ++i) AddInputs();
    const uint64_t layers = 1 + rng_->Below(6);
    for (uint64_t i = 0; i < layers; ++i) {
      if (rng_->OneIn(6)) {
        text_.layers.emplace_back();
        text_.layers.back().kind = LayerText::Kind::kEndStage;
      }
      AddLayer();
    }
    const View last = text_.layers.back().output;
    text_.outputs.push_back(rng_->OneIn(2) ? last : Part(last.value));
    for (uint64_t i = rng_->Below(3); i-- > 0;) text_.outputs.push_back(Readable());
    if (rng_->OneIn(4)) text_.layers.push_back(EndOfStage());
    return text_;
  }

 private:
  static LayerText EndOfStage() {
    LayerText end;
    end.kind = LayerText::Kind::kEndStage;
    return end;
  }

  int64_t Width() { return 1 + static_cast<int64_t>(rng_->Below(rng_->OneIn(3) ? 40 : 9)); }

  int NewValue(int64_t width) {
    text_.values.push_back(width);
    written_.push_back(0);
    return static_cast<int>(text_.values.size()) - 1;
  }

  View Append(int value, int64_t width) {
    const View view{value, written_[value], width};
    written_[value] += width;
    return view;
  }

  void AddInputs() {
    std::vector<int64_t> widths;
    int64_t total = 0;
    for (uint64_t i = 0; i < 1 + rng_->Below(3); ++i) {
      widths.push_back(Width());
      total += widths.back();
    }
    // Some columns may be a layer's.
    const int value = NewValue(total + (rng_->OneIn(4) ? Width() : 0));
    for (const int64_t width : widths) text_.inputs.push_back(Append(value, width));
  }

  View Part(int value) {
    const int64_t offset =
        static_cast<int64_t>(rng_->Below(static_cast<uint64_t>(written_[value])));
    const auto left = static_cast<uint64_t>(written_[value] - offset);
    return {value, offset, 1 + static_cast<int64_t>(rng_->Below(left))};
  }

  View Readable() {
    int value = 0;
    do {
      value = static_cast<int>(rng_->Below(text_.values.size()));
    } while (written_[value] == 0);
    return rng_->OneIn(3) ? Part(value) : View{value, 0, written_[value]};
  }

  // Columns to write: of a value that has some left, or of a new one.
  View Writable(int64_t width) {
    for (size_t v = 0; v < text_.values.size(); ++v) {
      if (text_.values[v] - written_[v] >= width && rng_->OneIn(2)) {
        return Append(static_cast<int>(v), width);
      }
    }
    return Append(NewValue(width + (rng_->OneIn(4) ? Width() : 0)), width);
  }

  void AddLayer() {
    LayerText layer;
    layer.input = Readable();
    const uint64_t kind = rng_->Below(6);
    if (kind < 2) {
      layer.kind = kind == 0 ? LayerText::Kind::kGelu : LayerText::Kind::kDropout;
      layer.output = Writable(layer.input.width);
      if (kind == 1) text_.masks = 7;
    } else {
      AddParameters(&layer);
    }
    text_.layers.push_back(layer);
  }

  void AddParameters(LayerText* layer) {
    const Activation smooth[] = {Activation::kNone, Activation::kTanh, Activation::kSigmoid};
    const Activation any[] = {Activation::kNone, Activation::kTanh, Activation::kSigmoid,
                              Activation::kRelu, Activation::kLeakyRelu};
    layer->activation = smooth_ ? smooth[rng_->Below(3)] : any[rng_->Below(5)];
    for (const LayerText& other : text_.layers) {
      if (other.kind != LayerText::Kind::kLinear || other.input.width != layer->input.width) {
        continue;
      }
      if (rng_->OneIn(2)) continue;
      const View input = layer->input;
      const Activation activation = layer->activation;
      *layer = other;
      layer->input = input;
      layer->activation = activation;
      layer->output = Writable(other.output.width);
      return;
    }
    layer->input_major = rng_->OneIn(2);
    layer->output = Writable(Width());
    const int64_t width = layer->output.width;
    NewPart(layer->input.width * width, &layer->weight, &layer->weight_offset);
    if (!rng_->OneIn(4)) NewPart(width, &layer->bias, &layer->bias_offset);
  }

  void NewPart(int64_t size, int* parameter, int64_t* offset) {
    if (text_.parameters.empty() || !rng_->OneIn(3)) text_.parameters.push_back(0);
    *parameter = static_cast<int>(text_.parameters.size()) - 1;
    *offset = text_.parameters.back();
    text_.parameters.back() += size;
  }

  Rng* const rng_;
  const bool smooth_;
  ProgramText text_;
  std::vector<int64_t> written_;  // columns of each value, from the first on
};

// ---------------------------------------------------------------- the model

double Activate(Activation a, double x) {
  switch (a) {
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kLeakyRelu:
      return x > 0 ? x : 0.2f * x;
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    default:
      return x;
  }
}

double Slope(Activation a, double y) {
  switch (a) {
    case Activation::kRelu:
      return y > 0 ? 1 : 0;
    case Activation::kLeakyRelu:
      return y > 0 ? 1 : 0.2f;
    case Activation::kTanh:
      return 1 - y * y;
    case Activation::kSigmoid:
      return y * (1 - y);
    default:
      return 1;
  }
}

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double GeluSlope(double x) {
  const double c = std::sqrt(2 / M_PI);
  const double t = std::tanh(c * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

class Model {
 public:
  Model(const ProgramText& text, const Given& given) : text_(text), given_(given) {}

  ModelResults Run() {
    for (const int64_t size : text_.parameters) {
      results_.parameter_gradients.emplace_back(static_cast<size_t>(size), 0.0);
    }
    results_.outputs.resize(text_.outputs.size());
    results_.input_gradients.resize(text_.inputs.size());
    for (int64_t row = 0; row < given_.tensors.batch; ++row) RunRow(row);
    return results_;
  }

 private:
  void RunRow(int64_t row) {
    values_.clear(), gradients_.clear();
    for (const int64_t width : text_.values) {
      values_.emplace_back(static_cast<size_t>(width), 0.0);
      gradients_.emplace_back(static_cast<size_t>(width), 0.0);
    }
    for (size_t i = 0; i < text_.inputs.size(); ++i) {
      const View& view = text_.inputs[i];
      for (int64_t j = 0; j < view.width; ++j) {
        At(view, j) = given_.tensors.inputs[i][row * view.width + j];
      }
    }
    for (size_t i = 0; i < text_.layers.size(); ++i) Forward(text_.layers[i], Mask(i, row));
    for (size_t i = 0; i < text_.outputs.size(); ++i) {
      const View& view = text_.outputs[i];
      for (int64_t j = 0; j < view.width; ++j) {
        results_.outputs[i].push_back(At(view, j));
        GradientAt(view, j) += given_.tensors.output_gradients[i][row * view.width + j];
      }
    }
    for (size_t i = text_.layers.size(); i-- > 0;) Backward(text_.layers[i], Mask(i, row));
    for (size_t i = 0; i < text_.inputs.size(); ++i) {
      for (int64_t j = 0; j < text_.inputs[i].width; ++j) {
        results_.input_gradients[i].push_back(GradientAt(text_.inputs[i], j));
      }
    }
  }

  double& At(const View& view, int64_t j) { return values_[view.value][view.offset + j]; }
  double& GradientAt(const View& view, int64_t j) {
    return gradients_[view.value][view.offset + j];
  }

  double Factor(double x) const {
    if (text_.precision == Precision::kFloat32) return x;
    float rounded = static_cast<float>(x);
    FindElementwise("base")->round_to_float(1, 1, {&rounded, 1}, {&rounded, 1});
    return rounded;
  }

  int64_t WeightAt(const LayerText& layer, int64_t out, int64_t in) const {
    return layer.weight_offset +
           (layer.input_major ? in * layer.output.width + out : out * layer.input.width + in);
  }

  // The mask of a row, if the layer is a dropout.
  const float* Mask(size_t layer, int64_t row) const {
    if (text_.layers[layer].kind != LayerText::Kind::kDropout) return nullptr;
    size_t dropout = 0;
    for (size_t i = 0; i < layer; ++i) {
      if (text_.layers[i].kind == LayerText::Kind::kDropout) ++dropout;
    }
    const int64_t mask = (row + 1 + given_.used[dropout]) % text_.masks;
    return given_.masks[dropout].data() + mask * text_.layers[layer].input.width;
  }

  void Forward(const LayerText& layer, const float* mask) {
    for (int64_t j = 0; j < layer.output.width; ++j) {
      double& y = At(layer.output, j);
      if (layer.kind == LayerText::Kind::kGelu) {
        y = Gelu(At(layer.input, j));
      } else if (layer.kind == LayerText::Kind::kDropout) {
        y = At(layer.input, j) * mask[j];
      } else {
        const auto& weight = given_.tensors.parameters[layer.weight];
        double sum = layer.bias < 0
                         ? 0.0
                         : double{given_.tensors.parameters[layer.bias][layer.bias_offset + j]};
        for (int64_t k = 0; k < layer.input.width; ++k) {
          sum += Factor(At(layer.input, k)) *
                 Factor(static_cast<double>(weight[WeightAt(layer, j, k)]));
        }
        if (layer.activation == Activation::kRelu || layer.activation == Activation::kLeakyRelu) {
          results_.nearest_corner = std::min(results_.nearest_corner, std::abs(sum));
        }
        y = Activate(layer.activation, sum);
      }
    }
  }

  void Backward(const LayerText& layer, const float* mask) {
    for (int64_t j = 0; j < layer.output.width; ++j) {
      double g = GradientAt(layer.output, j);
      if (layer.kind == LayerText::Kind::kGelu) {
        GradientAt(layer.input, j) += g * GeluSlope(At(layer.input, j));
        continue;
      }
      if (layer.kind == LayerText::Kind::kDropout) {
        GradientAt(layer.input, j) += g * mask[j];
        continue;
      }
      g *= Slope(layer.activation, At(layer.output, j));
      if (layer.bias >= 0) {
        results_.parameter_gradients[layer.bias][layer.bias_offset + j] += g;
      }
      const auto& weight = given_.tensors.parameters[layer.weight];
      for (int64_t k = 0; k < layer.input.width; ++k) {
        const int64_t at = WeightAt(layer, j, k);
        results_.parameter_gradients[layer.weight][at] += Factor(g) * Factor(At(layer.input, k));
        GradientAt(layer.input, k) += Factor(g) * Factor(static_cast<double>(weight[at]));
      }
    }
  }

  const ProgramText& text_;
  const Given& given_;
  std::vector<Rows> values_, gradients_;
  ModelResults results_;
};

}  // namespace

ProgramText RandomProgram(Rng* rng, Precision precision, bool smooth) {
  return Writer(rng, precision, smooth).Write();
}

std::unique_ptr<DenseProgram> Build(const ProgramText& text) {
  auto program = std::make_unique<DenseProgram>(text.precision);
  for (const int64_t width : text.values) program->AddValue(width);
  for (const View& view : text.inputs) program->AddInput(view);
  int extras = 0;
  for (const LayerText& layer : text.layers) {
    switch (layer.kind) {
      case LayerText::Kind::kEndStage:
        program->EndStage();
        break;
      case LayerText::Kind::kGelu:
        program->AddLayer(std::make_unique<msrec::Gelu>(layer.input, layer.output));
        break;
      case LayerText::Kind::kDropout:
        program->AddLayer(
            std::make_unique<Dropout>(layer.input, layer.output, extras, extras + 1, text.masks));
        extras += 2;
        break;
      default:
        program->AddLayer(std::make_unique<Linear>(
            layer.input, layer.output, Weight{layer.weight, layer.weight_offset, layer.input_major},
            Bias{layer.bias, layer.bias_offset}, layer.activation));
    }
  }
  for (const View& view : text.outputs) program->AddOutput(view);
  program->Finish(static_cast<int>(text.parameters.size()), extras);
  return program;
}

std::unique_ptr<Given> RandomGiven(const ProgramText& text, int64_t batch, Rng* rng) {
  auto given = std::make_unique<Given>();
  Tensors& tensors = given->tensors;
  tensors.batch = batch;
  const auto floats = [&](int64_t n) { return rng->Floats(static_cast<size_t>(n)); };
  for (const View& view : text.inputs) tensors.inputs.push_back(floats(batch * view.width));
  for (const int64_t size : text.parameters) tensors.parameters.push_back(floats(size));
  for (const View& view : text.outputs) {
    tensors.output_gradients.push_back(floats(batch * view.width));
  }
  for (const LayerText& layer : text.layers) {
    if (layer.kind != LayerText::Kind::kDropout) continue;
    given->masks.push_back(floats(text.masks * layer.input.width));
    given->used.push_back(static_cast<int32_t>(rng->Below(100)));
  }
  for (size_t i = 0; i < given->masks.size(); ++i) {
    tensors.extras.push_back(given->masks[i].data());
    tensors.extras.push_back(&given->used[i]);
  }
  return given;
}

ModelResults RunModel(const ProgramText& text, const Given& given) {
  return Model(text, given).Run();
}

int64_t RandomBatch(Rng* rng) {
  const int64_t batches[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 100, 129, 300};
  return batches[rng->Below(rng->OneIn(10) ? 12 : 9)];
}

namespace {

::testing::AssertionResult Near(const std::vector<std::vector<float>>& got,
                                const std::vector<std::vector<double>>& expected, double bound) {
  if (got.size() != expected.size()) return ::testing::AssertionFailure() << "number";
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].size() != expected[i].size()) return ::testing::AssertionFailure() << "size " << i;
    double most = 0.1;
    for (const double x : expected[i]) most = std::max(most, std::abs(x));
    for (size_t j = 0; j < got[i].size(); ++j) {
      // Not the other way round: NaN is no number that is near.
      if (std::abs(static_cast<double>(got[i][j]) - expected[i][j]) <= bound * most) continue;
      return ::testing::AssertionFailure() << "number " << i << ", element " << j << ": "
                                           << got[i][j] << ", expected " << expected[i][j];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

void CheckAgainstModel(Precision precision, size_t programs, double bound) {
  for (size_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const ProgramText text = RandomProgram(&rng, precision);
    const auto program = Build(text);
    const auto given = RandomGiven(text, RandomBatch(&rng), &rng);
    const Results results = RunProgram(*program, given->tensors);
    const ModelResults expected = RunModel(text, *given);
    ASSERT_TRUE(Near(results.outputs, expected.outputs, bound));
    const Results evaluated = RunProgram(*program, given->tensors, false);
    ASSERT_TRUE(Near(evaluated.outputs, expected.outputs, bound));
    // Beside the corner of a rectifier the slope is either one.
    if (expected.nearest_corner < bound) continue;
    ASSERT_TRUE(Near(results.input_gradients, expected.input_gradients, bound));
    ASSERT_TRUE(Near(results.parameter_gradients, expected.parameter_gradients, bound));
  }
}

}  // namespace msrec
