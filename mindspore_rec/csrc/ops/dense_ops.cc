// SPDX-License-Identifier: Apache-2.0
//
// Operators that run the forward pass and the backward pass of a DenseProgram. A separate forward
// operator for prediction saves no values for a backward pass. Shape inference does not receive the
// contents of constants, so the length of a one-dimensional constant passes a width:
//
//   descriptor  int64 [outputs], or [inputs + parameters] of the backward operator; [0] is the
//               program's number
//   widths      int8 constants whose length is a width: in units of 16 floats a row for `saved` and
//               `gradients`, of 4096 bytes for `packed`, in floats for an output
#include "dense/program.h"
#include "dense/program_registry.h"
#include "ops/operator.h"
#include "ops/worker_share.h"
#include "util/float_mode.h"

namespace msrec {
namespace {

constexpr int64_t kRowUnit = 16;
constexpr int64_t kPackedUnit = 4096 / sizeof(float);

// Returns the number of rows of `saved` and `gradients` for a batch, or -1 if the size of the batch
// is not known yet.
int64_t PaddedRows(int64_t batch) {
  if (batch < 0) return batch;
  const int64_t rows = SliceRows(batch);
  return (batch + rows - 1) / rows * rows;
}

std::shared_ptr<const DenseProgram> ProgramOf(const Args& args) {
  return FindProgram(*args.DataAtLeast<int64_t>(0, "descriptor", 1));
}

// Checks that an argument is float32 [batch, ...] with `width` numbers per row. If
// `may_be_bfloat16` is true, bfloat16 is allowed, too.
void CheckRows(const Args& args, int i, int64_t batch, int64_t width, const std::string& what,
               bool may_be_bfloat16 = false) {
  if (!args.IsType(i, "float32") && !(may_be_bfloat16 && args.IsType(i, kBfloat16))) {
    throw std::invalid_argument(what + " must be float32" +
                                (may_be_bfloat16 ? " or bfloat16" : "") + ", got " +
                                args.dtypes[i]);
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

// Reads the inputs, the parameters and the extras, in this order, beginning with argument `at`.
std::vector<const float*> ReadInputs(const Args& args, const DenseProgram& program, int at,
                                     BatchRun* run) {
  run->batch = Dimension(args.ndims, args.shapes, at);
  std::vector<const float*> inputs;
  for (int i = 0; i < program.inputs(); ++i) {
    CheckRows(args, at + i, run->batch, program.input_width(i), "input " + std::to_string(i), true);
    const bool halves = args.IsType(at + i, kBfloat16);
    const size_t size = args.Size(at + i);
    run->bfloat16_inputs.push_back(halves ? args.Bfloat16Data(at + i, "an input", size) : nullptr);
    inputs.push_back(halves ? nullptr : args.Data<float>(at + i, "an input", size));
  }
  at += program.inputs();
  for (int i = 0; i < program.parameters(); ++i) {
    if (!args.IsType(at + i, "float32")) {
      throw std::invalid_argument("parameter " + std::to_string(i) + " must be float32, got " +
                                  args.dtypes[at + i]);
    }
    const int64_t size = program.parameter_size(i);
    if (static_cast<int64_t>(args.Size(at + i)) != size) {
      throw std::invalid_argument("parameter " + std::to_string(i) + " must have " +
                                  std::to_string(size) + " elements, got " +
                                  args.ShapeText(at + i));
    }
    run->parameters.push_back(args.Data<float>(at + i, "a parameter", args.Size(at + i)));
  }
  at += program.parameters();
  for (const auto& [number, extra] : program.extra_inputs()) {
    CheckExtra(args, at + number, extra);
  }
  for (int i = 0; i < program.extras(); ++i) run->extras.push_back(args.params[at + i]);
  return inputs;
}

// For a training run, sets `run->share` to this worker's share of the batch. The returned share
// must outlive the run.
std::unique_ptr<BatchShare> Share(BatchRun* run) {
  std::unique_ptr<BatchShare> share = TheShare();
  if (share == nullptr) return nullptr;
  run->share = share.get();
  run->first_row = share->RowsBefore(run->batch);
  return share;
}

// Throws unless the number of arguments is `others` plus the number of arguments that ReadInputs
// reads.
void RequireOthers(const Args& args, const DenseProgram& program, int others) {
  args.RequireCount(others + program.inputs() + program.parameters() + program.extras());
}

// Returns the memory of the argument `saved` or `gradients`, whose rows have at least `width`
// floats.
float* Area(const Args& args, int i, const char* what, int64_t batch, int64_t width) {
  return args.DataAtLeast<float>(i, what, static_cast<size_t>(PaddedRows(batch) * width));
}

char* Packed(const Args& args, int i, const DenseProgram& program) {
  const auto bytes = static_cast<size_t>(program.packed_bytes());
  const size_t floats = (bytes + sizeof(float) - 1) / sizeof(float);
  return reinterpret_cast<char*>(args.DataAtLeast<float>(i, "packed", floats));
}

void Forward(const Args& args, bool training) {
  args.RequireAtLeast(1);
  const auto program = ProgramOf(args);
  const int outputs = program->outputs();
  const int first = (training ? 3 : 2) + outputs;
  RequireOthers(args, *program, first + outputs + (training ? 2 : 1));
  BatchRun run;
  run.training = training;
  run.has_inputs = true;
  const auto inputs = ReadInputs(args, *program, first, &run);
  int at = first + program->inputs() + program->parameters() + program->extras();
  std::vector<float*> results;
  for (int i = 0; i < outputs; ++i, ++at) {
    const auto floats = static_cast<size_t>(run.batch * program->output_width(i));
    results.push_back(args.Data<float>(at, "an output", floats));
  }
  if (training) run.saved = Area(args, at++, "saved", run.batch, program->saved_width());
  run.packed = Packed(args, at, *program);
  const auto share = training ? Share(&run) : nullptr;
  const DefaultFloatMode float_mode;
  program->Forward(&run, inputs, results);
}

}  // namespace
}  // namespace msrec

using msrec::BatchRun;
using msrec::Shape;

// (descriptor, saved width, packed width, output widths..., inputs..., parameters..., extras...)
//   -> (outputs..., saved, packed)
MSREC_EXPORT std::vector<Shape> MsrDenseForwardInferShape(int* ndims, int64_t** shapes, void*) {
  const auto width = [&](int64_t i) { return msrec::Dimension(ndims, shapes, i); };
  const int64_t outputs = width(0);
  const int64_t batch = width(3 + outputs);
  std::vector<Shape> found;
  for (int64_t i = 0; i < outputs; ++i) found.push_back({batch, width(3 + i)});
  found.push_back({msrec::PaddedRows(batch), width(1) * msrec::kRowUnit});
  found.push_back({width(2) * msrec::kPackedUnit});
  return found;
}
MSREC_OP(MsrDenseForward) { msrec::Forward(args, true); }

// Same as MsrDenseForward, but without the output `saved` and the input "saved width".
MSREC_EXPORT std::vector<Shape> MsrDensePredictInferShape(int* ndims, int64_t** shapes, void*) {
  const auto width = [&](int64_t i) { return msrec::Dimension(ndims, shapes, i); };
  const int64_t outputs = width(0);
  const int64_t batch = width(2 + outputs);
  std::vector<Shape> found;
  for (int64_t i = 0; i < outputs; ++i) found.push_back({batch, width(2 + i)});
  found.push_back({width(1) * msrec::kPackedUnit});
  return found;
}
MSREC_OP(MsrDensePredict) { msrec::Forward(args, false); }

// (descriptor, gradient width, inputs..., parameters..., extras..., saved, packed,
//  gradients of outputs...) -> (gradients of inputs..., of parameters..., gradients)
MSREC_EXPORT std::vector<Shape> MsrDenseBackwardInferShape(int* ndims, int64_t** shapes, void*) {
  std::vector<Shape> found;
  for (int64_t i = 0; i < msrec::Dimension(ndims, shapes, 0); ++i) {
    found.push_back(msrec::ShapeOf(ndims, shapes, 2 + i));
  }
  found.push_back({msrec::PaddedRows(msrec::Dimension(ndims, shapes, 2)),
                   msrec::Dimension(ndims, shapes, 1) * msrec::kRowUnit});
  return found;
}
MSREC_OP(MsrDenseBackward) {
  args.RequireAtLeast(1);
  const auto program = msrec::ProgramOf(args);
  const int arguments = program->inputs() + program->parameters();
  msrec::RequireOthers(args, *program, 2 + 2 + program->outputs() + arguments + 1);
  BatchRun run;
  run.has_inputs = true;
  run.inputs = msrec::ReadInputs(args, *program, 2, &run);
  int at = 2 + arguments + program->extras();
  run.saved = msrec::Area(args, at++, "saved", run.batch, program->saved_width());
  run.packed = msrec::Packed(args, at++, *program);
  std::vector<const float*> output_gradients;
  for (int i = 0; i < program->outputs(); ++i, ++at) {
    msrec::CheckRows(args, at, run.batch, program->output_width(i),
                     "gradient of output " + std::to_string(i));
    output_gradients.push_back(args.Data<float>(at, "a gradient", args.Size(at)));
  }
  std::vector<float*> input_gradients;
  // For each input and each parameter, the operator writes one output with the same number of
  // elements.
  for (int i = 0; i < arguments; ++i, ++at) {
    const char* what = "an output of gradients";
    const size_t size = args.Size(2 + i);
    const bool halves = i < program->inputs() && args.IsType(at, msrec::kBfloat16);
    float* gradient = halves ? nullptr : args.Data<float>(at, what, size);
    if (i < program->inputs()) {
      run.bfloat16_input_gradients.push_back(halves ? args.Bfloat16Data(at, what, size) : nullptr);
      input_gradients.push_back(gradient);
    } else {
      run.parameter_gradients.push_back(gradient);
    }
  }
  run.gradients = msrec::Area(args, at, "gradients", run.batch, program->gradient_width());
  const auto share = msrec::Share(&run);
  const msrec::DefaultFloatMode float_mode;
  program->Backward(&run, output_gradients, input_gradients);
}
