// SPDX-License-Identifier: Apache-2.0
//
// Operators: a DenseProgram forward (for training, and without what a backward pass needs) and
// backward. Shapes are told by constants of one dimension, for shape inference sees no contents:
//
//   descriptor  int64 [outputs], or [inputs + parameters] of the backward operator; [0] is the
//               program's number
//   widths      int8 constants whose length is a width: in units of 16 floats a row for `saved` and
//               `gradients`, of 4096 bytes for `packed`, in floats for an output
#include "dense/program.h"
#include "dense/program_registry.h"
#include "ops/operator.h"
#include "util/float_mode.h"

namespace msrec {
namespace {

constexpr int64_t kRowUnit = 16;
constexpr int64_t kPackedUnit = 4096 / sizeof(float);

// Number of rows of an argument; of a scalar, which the operator then refuses, 0.
int64_t RowsOf(const int* ndims, int64_t* const* shapes, int64_t i) {
  return ndims[i] == 0 ? 0 : shapes[i][0];
}

// Rows of `saved` and `gradients` for a batch; -1 where the batch is not known yet.
int64_t PaddedRows(int64_t batch) {
  if (batch < 0) return batch;
  const int64_t rows = SliceRows(batch);
  return (batch + rows - 1) / rows * rows;
}

std::shared_ptr<const DenseProgram> ProgramOf(const Args& args) {
  return FindProgram(args.Data<int64_t>(0)[0]);
}

// Checks that an argument is float32 [batch, ...] with `width` floats a row.
void CheckRows(const Args& args, int i, int64_t batch, int64_t width, const std::string& what) {
  if (!args.IsType(i, "float32")) {
    throw std::invalid_argument(what + " must be float32, got " + args.dtypes[i]);
  }
  const bool fits = args.ndims[i] >= 1 && args.shapes[i][0] == batch &&
                    static_cast<int64_t>(args.Size(i)) == batch * width;
  if (!fits) {
    const std::string rows = args.ndims[i] == 0 ? "B" : std::to_string(batch);
    throw std::invalid_argument(what + " must be [" + rows + ", " + std::to_string(width) +
                                "], got " + args.ShapeText(i));
  }
}

void CheckExtra(const Args& args, int i, const ExtraInput& extra) {
  if (args.IsType(i, extra.type) && static_cast<int64_t>(args.Size(i)) == extra.size) return;
  throw std::invalid_argument("further input " + std::to_string(extra.number) + " must have " +
                              std::to_string(extra.size) + " elements of " + extra.type + ", got " +
                              args.ShapeText(i) + " of " + args.dtypes[i]);
}

// Reads inputs, parameters and extras, which begin at argument `at`.
std::vector<const float*> ReadInputs(const Args& args, const DenseProgram& program, int at,
                                     BatchRun* run) {
  run->batch = RowsOf(args.ndims, args.shapes, at);
  std::vector<const float*> inputs;
  for (int i = 0; i < program.inputs(); ++i) {
    CheckRows(args, at + i, run->batch, program.input_width(i), "input " + std::to_string(i));
    inputs.push_back(args.Data<float>(at + i));
  }
  at += program.inputs();
  for (int i = 0; i < program.parameters(); ++i) {
    if (!args.IsType(at + i, "float32")) {
      throw std::invalid_argument("parameter " + std::to_string(i) + " must be float32, got " +
                                  args.dtypes[at + i]);
    }
    const int64_t size = program.parameter_size(i);
    if (size >= 0 && static_cast<int64_t>(args.Size(at + i)) != size) {
      throw std::invalid_argument("parameter " + std::to_string(i) + " must have " +
                                  std::to_string(size) + " elements, got " +
                                  args.ShapeText(at + i));
    }
    run->parameters.push_back(args.Data<float>(at + i));
  }
  at += program.parameters();
  for (const auto& [number, extra] : program.extra_inputs()) {
    CheckExtra(args, at + number, extra);
  }
  for (int i = 0; i < program.extras(); ++i) run->extras.push_back(args.params[at + i]);
  return inputs;
}

void Forward(const Args& args, bool training) {
  const auto program = ProgramOf(args);
  const int outputs = program->outputs();
  const int first = (training ? 3 : 2) + outputs;
  BatchRun run;
  run.training = training;
  const auto inputs = ReadInputs(args, *program, first, &run);
  int at = first + program->inputs() + program->parameters() + program->extras();
  std::vector<float*> results;
  for (int i = 0; i < outputs; ++i) results.push_back(args.Data<float>(at++));
  if (training) run.saved = args.Data<float>(at++);
  run.packed = args.Data<char>(at);
  const DefaultFloatMode float_mode;
  program->Forward(&run, inputs, results);
}

}  // namespace
}  // namespace msrec

using msrec::Args;
using msrec::BatchRun;
using msrec::Shape;

// (descriptor, saved width, packed width, output widths..., inputs..., parameters..., extras...)
//   -> (outputs..., saved, packed)
MSREC_EXPORT std::vector<Shape> MsrDenseForwardInferShape(int* ndims, int64_t** shapes, void*) {
  const int64_t outputs = shapes[0][0];
  const int64_t batch = msrec::RowsOf(ndims, shapes, 3 + outputs);
  std::vector<Shape> found;
  for (int64_t i = 0; i < outputs; ++i) found.push_back({batch, shapes[3 + i][0]});
  found.push_back({msrec::PaddedRows(batch), shapes[1][0] * msrec::kRowUnit});
  found.push_back({shapes[2][0] * msrec::kPackedUnit});
  return found;
}
MSREC_OP(MsrDenseForward) {
  msrec::Forward({params, ndims, shapes, dtypes}, true);
  return 0;
}

// The same without `saved`, of which there is no width.
MSREC_EXPORT std::vector<Shape> MsrDensePredictInferShape(int* ndims, int64_t** shapes, void*) {
  const int64_t outputs = shapes[0][0];
  const int64_t batch = msrec::RowsOf(ndims, shapes, 2 + outputs);
  std::vector<Shape> found;
  for (int64_t i = 0; i < outputs; ++i) found.push_back({batch, shapes[2 + i][0]});
  found.push_back({shapes[1][0] * msrec::kPackedUnit});
  return found;
}
MSREC_OP(MsrDensePredict) {
  msrec::Forward({params, ndims, shapes, dtypes}, false);
  return 0;
}

// (descriptor, gradient width, inputs..., parameters..., extras..., saved, packed,
//  gradients of outputs...) -> (gradients of inputs..., of parameters..., gradients)
MSREC_EXPORT std::vector<Shape> MsrDenseBackwardInferShape(int* ndims, int64_t** shapes, void*) {
  std::vector<Shape> found;
  for (int64_t i = 0; i < shapes[0][0]; ++i) {
    found.emplace_back(shapes[2 + i], shapes[2 + i] + ndims[2 + i]);
  }
  found.push_back(
      {msrec::PaddedRows(msrec::RowsOf(ndims, shapes, 2)), shapes[1][0] * msrec::kRowUnit});
  return found;
}
MSREC_OP(MsrDenseBackward) {
  const Args args{params, ndims, shapes, dtypes};
  const auto program = msrec::ProgramOf(args);
  BatchRun run;
  msrec::ReadInputs(args, *program, 2, &run);
  int at = 2 + program->inputs() + program->parameters() + program->extras();
  run.saved = args.Data<float>(at++);
  run.packed = args.Data<char>(at++);
  std::vector<const float*> output_gradients;
  for (int i = 0; i < program->outputs(); ++i, ++at) {
    msrec::CheckRows(args, at, run.batch, program->output_width(i),
                     "gradient of output " + std::to_string(i));
    output_gradients.push_back(args.Data<float>(at));
  }
  std::vector<float*> input_gradients;
  for (int i = 0; i < program->inputs(); ++i) input_gradients.push_back(args.Data<float>(at++));
  for (int i = 0; i < program->parameters(); ++i) {
    run.parameter_gradients.push_back(args.Data<float>(at++));
  }
  run.gradients = args.Data<float>(at);
  const msrec::DefaultFloatMode float_mode;
  program->Backward(&run, output_gradients, input_gradients);
  return 0;
}
