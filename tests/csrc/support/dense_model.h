// SPDX-License-Identifier: Apache-2.0
//
// Random dense programs, and what they compute, in double precision and one row after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dense/elementwise.h"
#include "dense/program.h"
#include "dense_testing.h"
#include "testing.h"

namespace msrec {

struct LayerText {
  enum class Kind { kLinear, kGelu, kDropout, kEndStage };

  Kind kind = Kind::kLinear;
  View input, output;
  int weight = -1, bias = -1;  // parameters
  int64_t weight_offset = 0, bias_offset = 0;
  bool input_major = false;
  Activation activation = Activation::kNone;
};

struct ProgramText {
  Precision precision = Precision::kFloat32;
  std::vector<int64_t> values;      // widths
  std::vector<int64_t> parameters;  // sizes
  std::vector<View> inputs, outputs;
  std::vector<LayerText> layers;
  int64_t masks = 0;  // of each dropout, which reads two further inputs of its own
};

// Describes a random program of a few narrow layers: views as inputs and outputs, values with
// several readers, shared parameters, parameters with several parts, stages.
ProgramText RandomProgram(Rng* rng, Precision precision, bool smooth = false);

std::unique_ptr<DenseProgram> Build(const ProgramText& text);

// Numbers for a run, with the further inputs that `Tensors::extras` point to.
struct Given {
  Tensors tensors;
  std::vector<std::vector<float>> masks;
  std::vector<int32_t> used;
};
std::unique_ptr<Given> RandomGiven(const ProgramText& text, int64_t batch, Rng* rng);

struct ModelResults {
  std::vector<std::vector<double>> outputs, input_gradients, parameter_gradients;
  double nearest_corner = 1e300;  // least |x| of a rectifier's input
};

// Computes what `RunProgram` does. Products round their factors as the precision says.
ModelResults RunModel(const ProgramText& text, const Given& given);

// Returns a number of rows: few, several slices, and whole and broken ones.
int64_t RandomBatch(Rng* rng);

// Compares the results of so many random programs with the model's: numbers differ by at most
// `bound` times the largest of their matrix.
void CheckAgainstModel(Precision precision, size_t programs, double bound);

}  // namespace msrec
