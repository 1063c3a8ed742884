// SPDX-License-Identifier: Apache-2.0
//
// Dense programs on a device: random ones against the model, and passes that wait for each other.
#include "dense/device_program.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dense/linear.h"
#include "dense/scale_groups.h"
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

TEST_F(DevicePrograms, RunForSeveralCallersAtATime) {
  Rng rng(3);
  const ProgramText text = RandomProgram(&rng, Precision::kFloat32);
  const auto given = RandomGiven(text, 40, &rng);
  const auto program = Build(text);
  const auto expected = RunProgram(*program, given->tensors);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        if (!SameResults(RunProgram(*program, given->tensors), expected)) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(DevicePrograms, LeaveNoDeviceToTheThread) {
  Rng rng(2);
  const ProgramText text = RandomProgram(&rng, Precision::kFloat32);
  RunProgram(*Build(text), RandomGiven(text, 3, &rng)->tensors);
  EXPECT_THROW(CurrentKernelDevice(), std::logic_error);
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

  void Release() { program_.Release(); }

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
  constexpr size_t kPasses = 40;  // they take little memory
  static_assert(kPasses > DeviceProgram::kLeastKept);
  Passes passes;
  std::vector<std::vector<float>> saved;
  for (size_t i = 0; i < kPasses; ++i) {
    const auto a = static_cast<float>(i);
    float output = 0.0f;
    saved.push_back(passes.Forward(a, 1.0f, &output));
    EXPECT_EQ(output, 3.0f * a + 5.0f);
  }
  for (size_t i = 0; i < kPasses; ++i) {
    const size_t at = 7 * i % kPasses;
    EXPECT_EQ(passes.Backward(&saved[at], 2.0f),
              (std::vector<float>{2.0f * static_cast<float>(at), 2.0f}));
  }
}

TEST_F(DevicePrograms, SayThatTheValuesOfAForwardPassAreGone) {
  Passes passes;
  float output = 0.0f;
  passes.Forward(1.0f, 1.0f, &output);
  std::vector<float> other(16 * 16, 0.0f);  // of no forward pass
  try {
    passes.Backward(&other, 1.0f);
    FAIL() << "there are no such values";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("no longer"), std::string::npos);
  }
}

TEST_F(DevicePrograms, GiveBackWhatNothingWaitsFor) {
  const auto emulated = std::make_shared<EmulatedDevice>();
  SetDenseDevice(emulated);
  Passes passes;
  float output = 0.0f;
  std::vector<float> waits = passes.Forward(1.0f, 2.0f, &output);
  std::vector<float> done = passes.Forward(3.0f, 4.0f, &output);
  passes.Backward(&done, 1.0f);
  const size_t before = emulated->allocated();
  passes.Release();
  EXPECT_LT(emulated->allocated(), before);
  EXPECT_EQ(passes.Backward(&waits, 1.0f), (std::vector<float>{1.0f, 2.0f}));
  passes.Release();
  EXPECT_EQ(emulated->allocated(), 0u);
  passes.Forward(1.0f, 2.0f, &output);
  EXPECT_EQ(output, 13.0f);
}

TEST_F(DevicePrograms, RefuseAParameterOfLayersOfTwoKinds) {
  DenseProgram program(Precision::kFloat32);
  const int x = program.AddValue(2), y = program.AddValue(2), z = program.AddValue(4);
  program.AddInput(program.Whole(x));
  program.AddOutput(program.Whole(y));
  program.AddOutput(program.Whole(z));
  program.AddLayer(std::make_unique<Linear>(program.Whole(x), program.Whole(y), Weight{0}, Bias{},
                                            Activation::kNone));
  program.AddLayer(std::make_unique<ScaleVectors>(program.Whole(x), program.Whole(z), 0));
  EXPECT_THROW(program.Finish(1, 0), std::invalid_argument);
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
