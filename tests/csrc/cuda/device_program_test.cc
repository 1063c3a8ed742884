// SPDX-License-Identifier: Apache-2.0
//
// Dense programs on a device: random ones against the model, and passes that wait for each other.
#include "dense/device_program.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "dense/linear.h"
#include "dense_model.h"
#include "emulated_device.h"

namespace msrec {
namespace {

// On the emulated device, unless the environment has chosen one.
class DevicePrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = ActiveDenseDevice();
    if (before_ == nullptr) SetDenseDevice(std::make_shared<EmulatedDevice>());
  }
  void TearDown() override { SetDenseDevice(before_); }

 private:
  std::shared_ptr<DenseDevice> before_;
};

TEST_F(DevicePrograms, AreTheModel) { CheckAgainstModel(Precision::kFloat32, 300 / kFewer, 1e-5); }

TEST_F(DevicePrograms, AreTheModelInBfloat16) {
  CheckAgainstModel(Precision::kBFloat16, 100 / kFewer, 1e-2);
}

TEST_F(DevicePrograms, GiveTheSameBitsInEachRun) {
  for (size_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const ProgramText text = RandomProgram(&rng, Precision::kFloat32);
    const auto given = RandomGiven(text, 1 + static_cast<int64_t>(rng.Below(3000)), &rng);
    const auto program = Build(text);
    EXPECT_TRUE(SameResults(RunProgram(*program, given->tensors),
                            RunProgram(*Build(text), given->tensors)));
  }
}

TEST_F(DevicePrograms, KeepNothingOfTheBatchOnTheHost) {
  Rng rng(1);
  const auto program = Build(RandomProgram(&rng, Precision::kFloat32));
  EXPECT_EQ(program->saved_width(), 16);  // the name of what the device keeps
  EXPECT_EQ(program->gradient_width(), 0);
}

// y = x W^T of one input and one output.
class Passes {
 public:
  Passes() : program_(Precision::kFloat32) {
    const int x = program_.AddValue(2);
    const int y = program_.AddValue(1);
    program_.AddInput(program_.Whole(x));
    program_.AddOutput(program_.Whole(y));
    program_.AddLayer(std::make_unique<Linear>(program_.Whole(x), program_.Whole(y), Weight{0},
                                               Bias{}, Activation::kNone));
    program_.Finish(1, 0);
  }

  // A forward pass of one row (a, b), which gives 3 a + 5 b.
  std::vector<float> Forward(float a, float b, float* output) {
    std::vector<float> saved(16 * 16);
    const float input[] = {a, b};
    BatchRun run;
    run.training = true;
    run.batch = 1;
    run.saved = saved.data();
    run.parameters = {weight_};
    program_.Forward(&run, {input}, {output});
    return saved;
  }

  // Returns the gradient of the weight: the row times the gradient.
  std::vector<float> Backward(std::vector<float>* saved, float gradient) {
    std::vector<float> of_weight(2), of_input(2);
    BatchRun run;
    run.batch = 1;
    run.saved = saved->data();
    run.parameters = {weight_};
    run.parameter_gradients = {of_weight.data()};
    program_.Backward(&run, {&gradient}, {of_input.data()});
    return of_weight;
  }

 private:
  const float weight_[2] = {3.0f, 5.0f};
  DenseProgram program_;
};

TEST_F(DevicePrograms, SeveralForwardPassesWaitForTheirBackwardPasses) {
  Passes passes;
  std::vector<std::vector<float>> saved;
  for (size_t i = 0; i < DeviceProgram::kMostKept; ++i) {
    const auto a = static_cast<float>(i);
    float output = 0.0f;
    saved.push_back(passes.Forward(a, 1.0f, &output));
    EXPECT_EQ(output, 3.0f * a + 5.0f);
  }
  for (const size_t i : {3, 0, 7, 1, 2, 6, 5, 4}) {
    EXPECT_EQ(passes.Backward(&saved[i], 2.0f),
              (std::vector<float>{2.0f * static_cast<float>(i), 2.0f}));
  }
}

TEST_F(DevicePrograms, SayThatTheValuesOfAForwardPassAreGone) {
  Passes passes;
  float output = 0.0f;
  std::vector<float> first = passes.Forward(1.0f, 1.0f, &output);
  for (size_t i = 0; i < DeviceProgram::kMostKept; ++i) passes.Forward(2.0f, 2.0f, &output);
  try {
    passes.Backward(&first, 1.0f);
    FAIL() << "the values were overwritten";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("at most 8 forward passes"), std::string::npos);
  }
}

// Memory that the device has not got: the pass throws, and the next one that fits goes through.
TEST(DeviceProgramMemory, ThatIsMissingIsAnErrorOfThatPassAlone) {
  const auto device = std::make_shared<EmulatedDevice>();
  SetDenseDevice(device);
  Passes passes;
  float output = 0.0f;
  std::vector<float> saved = passes.Forward(1.0f, 2.0f, &output);
  EXPECT_EQ(passes.Backward(&saved, 1.0f), (std::vector<float>{1.0f, 2.0f}));
  for (int allocations = 0; allocations < 12; ++allocations) {
    SCOPED_TRACE(allocations);
    Passes other;
    device->FailAfter(allocations);
    bool failed = false;
    try {
      std::vector<float> kept = other.Forward(1.0f, 2.0f, &output);
      other.Backward(&kept, 1.0f);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    device->FailAfter(-1);
    if (allocations == 0) EXPECT_TRUE(failed);
    std::vector<float> kept = other.Forward(1.0f, 2.0f, &output);
    EXPECT_EQ(output, 13.0f);
    EXPECT_EQ(other.Backward(&kept, 1.0f), (std::vector<float>{1.0f, 2.0f}));
  }
  SetDenseDevice(nullptr);
}

}  // namespace
}  // namespace msrec
