// SPDX-License-Identifier: Apache-2.0
//
// Dropout inside a linear layer or a normalization against a dropout that is a layer of its own.
#include "dense/row_masks.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "dense/batch_norm.h"
#include "dense/linear.h"
#include "dense/row_layers.h"
#include "dense_testing.h"
#include "testing.h"

namespace msrec {
namespace {

constexpr int64_t kIn = 7, kHidden = 21, kMasks = 5;

struct Given {
  Tensors tensors;
  std::vector<float> masks, mean, variance;
  std::vector<int32_t> used{3};
};

std::unique_ptr<Given> RandomGiven(int64_t batch, bool normalizes, Rng* rng) {
  auto given = std::make_unique<Given>();
  Tensors& tensors = given->tensors;
  tensors.batch = batch;
  tensors.inputs = {rng->Floats(batch * kIn)};
  tensors.parameters = {rng->Floats(kHidden * kIn), rng->Floats(kHidden)};
  if (normalizes) tensors.parameters.push_back(rng->Floats(kHidden));
  tensors.parameters.push_back(rng->Floats(3 * kHidden));
  tensors.output_gradients = {rng->Floats(batch * 3)};
  for (int64_t i = 0; i < kMasks * kHidden; ++i) {
    given->masks.push_back(rng->Float(0.0f, 1.0f) < 0.4f ? 0.0f : 1.25f);
  }
  given->mean = rng->Floats(kHidden);
  given->variance.assign(kHidden, 1.5f);
  tensors.extras = {given->masks.data(), given->used.data(), given->mean.data(),
                    given->variance.data()};
  return given;
}

// Two linear layers with a dropout between them, inside the first one or behind it.
std::unique_ptr<DenseProgram> Stack(Precision precision, Activation activation, bool normalizes,
                                    bool inside) {
  auto program = std::make_unique<DenseProgram>(precision);
  const auto add = [&](int64_t width) { return program->Whole(program->AddValue(width)); };
  const View x = add(kIn), first = add(kHidden);
  program->AddInput(x);
  const RowMasks masks = inside ? RowMasks{0, 1, kMasks} : RowMasks{};
  View y = first;
  int next = 1;
  if (normalizes) {
    program->AddLayer(std::make_unique<Linear>(x, first, Weight{0}, Bias{}, Activation::kNone));
    y = add(kHidden);
    BatchNorm norm;
    norm.input = first;
    norm.output = y;
    norm.gamma = next++;
    norm.beta = next++;
    norm.mean = 2;
    norm.variance = 3;
    norm.activation = activation;
    norm.masks = masks;
    AddBatchNorm(norm, true, program.get());
  } else {
    program->AddLayer(
        std::make_unique<Linear>(x, first, Weight{0}, Bias{next++}, activation, masks));
  }
  if (!inside) {
    const View dropped = add(kHidden);
    program->AddLayer(std::make_unique<Dropout>(y, dropped, 0, 1, kMasks));
    y = dropped;
  }
  const View z = add(3);
  program->AddLayer(std::make_unique<Linear>(y, z, Weight{next++}, Bias{}, Activation::kNone));
  program->AddOutput(z);
  program->Finish(next, 4);
  return program;
}

class RowMasksTest : public OneDnnTest {};

TEST_F(RowMasksTest, InsideALayerTheyAreALayerBehindIt) {
  Rng rng(1);
  for (const auto precision : {Precision::kFloat32, Precision::kRoundedFloat32}) {
    for (const auto activation : {Activation::kNone, Activation::kRelu, Activation::kLeakyRelu}) {
      for (const bool normalizes : {false, true}) {
        for (const int64_t batch : {1, 6, 300}) {
          const auto given = RandomGiven(batch, normalizes, &rng);
          const auto run = [&](bool inside) {
            return RunProgram(*Stack(precision, activation, normalizes, inside), given->tensors);
          };
          const Results one = run(true), other = run(false);
          // Zeros of either sign are equal.
          EXPECT_EQ(one.outputs, other.outputs);
          EXPECT_EQ(one.input_gradients, other.input_gradients);
          EXPECT_EQ(one.parameter_gradients, other.parameter_gradients);
        }
      }
    }
  }
}

TEST_F(RowMasksTest, InsideALayerThereIsAValueLess) {
  if (ActiveDenseDevice() != nullptr) GTEST_SKIP() << "values are in the device's memory";
  const auto width = [](bool inside) {
    return Stack(Precision::kFloat32, Activation::kRelu, false, inside)->saved_width();
  };
  EXPECT_LT(width(true), width(false));
}

TEST(RowMasksArgumentsTest, ActivationsWhoseSlopeIsLostAreRefused) {
  const View x{0, 0, 3}, y{1, 0, 3};
  const RowMasks masks{0, 1, 4};
  for (const auto activation : {Activation::kTanh, Activation::kSigmoid}) {
    EXPECT_THROW(Linear(x, y, Weight{0}, Bias{}, activation, masks), std::invalid_argument);
    BatchNorm norm;
    norm.input = x;
    norm.output = y;
    norm.activation = activation;
    norm.masks = masks;
    EXPECT_THROW(Normalization(norm, nullptr), std::invalid_argument);
  }
  const RowMasks none{0, 1, 0};
  EXPECT_THROW(Linear(x, y, Weight{0}, Bias{}, Activation::kRelu, none), std::invalid_argument);
}

}  // namespace
}  // namespace msrec
