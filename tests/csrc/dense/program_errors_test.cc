// SPDX-License-Identifier: Apache-2.0
//
// Descriptions of impossible programs are refused with std::invalid_argument, and no other error.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

#include "dense/linear.h"
#include "dense/program_registry.h"
#include "dense/row_layers.h"

namespace msrec {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

void ExpectRefused(const std::string& what, const std::function<void(DenseProgram*)>& describe) {
  DenseProgram program(Precision::kFloat32);
  program.AddValue(4);
  program.AddInput({0, 0, 4});
  program.AddValue(6);
  try {
    describe(&program);
    FAIL() << "no exception: " << what;
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  }
}

// A linear layer from `x` to `y`, its weight and bias the parameters `weight` and `bias`.
std::unique_ptr<Layer> MakeLinear(View x, View y, Weight weight = {0, 0, false},
                                  Bias bias = {-1, 0}) {
  return std::make_unique<Linear>(x, y, weight, bias, Activation::kNone);
}

const View kInput{0, 0, 4};
const View kOutput{1, 0, 6};

TEST(DenseProgramErrors, Views) {
  for (const View view :
       {View{-1, 0, 1}, View{2, 0, 1}, View{0, -1, 2}, View{0, 0, 0}, View{0, 0, 5}, View{0, 4, 1},
        View{0, 1, kMost}, View{0, kMost, 2}, View{0, 0, -1}}) {
    const auto what = view.value == 0 ? "value 0 has 4 columns" : "there is no value";
    ExpectRefused(what, [&](DenseProgram* p) { p->AddInput(view); });
    ExpectRefused(what, [&](DenseProgram* p) { p->AddOutput(view); });
    ExpectRefused(what, [&](DenseProgram* p) { p->AddLayer(MakeLinear(view, kOutput)); });
    ExpectRefused(what, [&](DenseProgram* p) { p->AddLayer(MakeLinear(kInput, view)); });
  }
  for (const int64_t width : {int64_t{0}, int64_t{-1}, kMost}) {
    ExpectRefused("width of a value", [&](DenseProgram* p) { p->AddValue(width); });
  }
}

TEST(DenseProgramErrors, ColumnsAreWrittenOnceBeforeTheyAreRead) {
  ExpectRefused("nothing wrote", [](DenseProgram* p) { p->AddLayer(MakeLinear(kOutput, kInput)); });
  ExpectRefused("nothing wrote", [](DenseProgram* p) {
    p->AddLayer(MakeLinear(kInput, {1, 0, 5}));
    p->AddLayer(MakeLinear({1, 1, 5}, {p->AddValue(2), 0, 2}));
  });
  ExpectRefused("nothing wrote", [](DenseProgram* p) {
    p->AddLayer(MakeLinear(kInput, {1, 0, 5}));
    p->AddOutput(kOutput);
    p->Finish(1, 0);
  });
  ExpectRefused("written twice", [](DenseProgram* p) { p->AddInput({0, 3, 1}); });
  ExpectRefused("written twice",
                [](DenseProgram* p) { p->AddLayer(MakeLinear({0, 0, 2}, {0, 2, 2})); });
  ExpectRefused("written twice", [](DenseProgram* p) {
    p->AddLayer(MakeLinear(kInput, {1, 0, 5}));
    p->AddLayer(MakeLinear(kInput, {1, 4, 2}));
  });
}

TEST(DenseProgramErrors, Widths) {
  EXPECT_THROW(Gelu({0, 0, 3}, {1, 0, 4}), std::invalid_argument);
  EXPECT_THROW(Dropout({0, 0, 3}, {1, 0, 4}, 0, 1, 5), std::invalid_argument);
  EXPECT_THROW(Dropout({0, 0, 3}, {1, 0, 3}, 0, 1, 0), std::invalid_argument);
  EXPECT_THROW(Linear(kInput, kOutput, {0, 0, false}, {-1, 0}, Activation::kGelu),
               std::invalid_argument);
}

// Adds a layer, an output of it, and finishes the program with so many parameters.
void ExpectUnfinished(const std::string& what, std::unique_ptr<Layer> layer, int parameters,
                      int extras = 0) {
  ExpectRefused(what, [&](DenseProgram* p) {
    p->AddLayer(std::move(layer));
    p->AddOutput({1, 0, 1});
    p->Finish(parameters, extras);
  });
}

TEST(DenseProgramErrors, Parameters) {
  const auto linear = [](Weight weight, Bias bias) {
    return MakeLinear(kInput, kOutput, weight, bias);
  };
  ExpectUnfinished("element 0 of parameter 1", linear({1, 0, false}, {-1, 0}), 1);
  ExpectUnfinished("element 0 of parameter -1", linear({-1, 0, false}, {-1, 0}), 1);
  ExpectUnfinished("element -2 of parameter 0", linear({0, -2, false}, {-1, 0}), 1);
  ExpectUnfinished("element 0 of parameter 7", linear({0, 0, false}, {7, 0}), 1);
  ExpectUnfinished("every parameter", linear({0, 0, false}, {-1, 0}), 2);
  ExpectUnfinished("at least 0", linear({0, 0, false}, {-1, 0}), -1);
  ExpectUnfinished("overlap", linear({0, 0, false}, {0, 23}), 1);
  ExpectUnfinished("leave elements out", linear({0, 0, false}, {0, 25}), 1);
  ExpectUnfinished("leave elements out", linear({0, 1, false}, {-1, 0}), 1);
  ExpectUnfinished("parts of different sizes", linear({0, 0, false}, {0, 0}), 1);
  ExpectUnfinished("further input 2", std::make_unique<Dropout>(kInput, View{1, 0, 4}, 0, 2, 3), 0,
                   2);
  ExpectUnfinished("further input -1", std::make_unique<Dropout>(kInput, View{1, 0, 4}, -1, 0, 3),
                   0, 2);
}

TEST(DenseProgramErrors, LayersThatShareOneParameterOfTwo) {
  ExpectRefused("must share all", [](DenseProgram* p) {
    p->AddLayer(MakeLinear(kInput, {1, 0, 3}, {0, 0, false}, {1, 0}));
    p->AddLayer(MakeLinear(kInput, {1, 3, 3}, {0, 0, false}, {2, 0}));
    p->AddOutput(kOutput);
    p->Finish(3, 0);
  });
}

TEST(DenseProgramErrors, ProgramsWithoutInputsOrOutputs) {
  ExpectRefused("at least one input", [](DenseProgram* p) { p->Finish(0, 0); });
  DenseProgram empty(Precision::kFloat32);
  EXPECT_THROW(empty.Finish(0, 0), std::invalid_argument);
}

TEST(DenseProgramErrors, ParametersHaveTheSizeOfTheirParts) {
  DenseProgram program(Precision::kFloat32);
  program.AddValue(4);
  program.AddInput(kInput);
  program.AddValue(6);
  program.AddLayer(MakeLinear(kInput, kOutput, {0, 6, true}, {0, 0}));
  program.AddOutput(kOutput);
  program.Finish(1, 0);
  EXPECT_EQ(program.parameter_size(0), 30);
}

TEST(DenseProgramErrors, NumbersThatAreGone) {
  const int64_t id = RegisterProgram(std::make_shared<DenseProgram>(Precision::kFloat32));
  EXPECT_NE(FindProgram(id), nullptr);
  UnregisterProgram(id);
  EXPECT_THROW(FindProgram(id), std::runtime_error);
  EXPECT_THROW(FindProgram(-1), std::runtime_error);
}

TEST(DenseProgramErrors, ParametersOfNoLayerTakeNoMemory) {
  ExpectRefused("every parameter must be of a layer", [](DenseProgram* program) {
    program->AddLayer(MakeLinear(kInput, {1, 0, 6}));
    program->AddOutput({1, 0, 6});
    program->Finish(std::numeric_limits<int>::max(), 0);
  });
}

}  // namespace
}  // namespace msrec
