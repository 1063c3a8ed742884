// SPDX-License-Identifier: Apache-2.0
//
// Random dense programs against a model in double precision, in memory that is NaN beforehand.
#include "dense/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "dense_model.h"

namespace msrec {
namespace {

class DensePrograms : public OneDnnTest {};
class DenseProgramThreads : public OneDnnTest {};

TEST_F(DensePrograms, AreTheModel) { CheckAgainstModel(Precision::kFloat32, 600 / kFewer, 1e-5); }

// Rounding may go the other way where sums differ in their last bit.
TEST_F(DensePrograms, AreTheModelWithRoundedFactors) {
  CheckAgainstModel(Precision::kRoundedFloat32, 200 / kFewer, 1e-2);
}

TEST_F(DensePrograms, AreTheModelInBfloat16) {
  if (!OneDnn::has_bfloat16()) GTEST_SKIP() << "this processor has no fast bfloat16";
  CheckAgainstModel(Precision::kBFloat16, 200 / kFewer, 1e-2);
}

double Total(const ModelResults& results, const Given& given) {
  double sum = 0;
  for (size_t i = 0; i < results.outputs.size(); ++i) {
    for (size_t j = 0; j < results.outputs[i].size(); ++j) {
      sum += results.outputs[i][j] * static_cast<double>(given.tensors.output_gradients[i][j]);
    }
  }
  return sum;
}

TEST_F(DensePrograms, GradientsAreDifferences) {
  for (size_t seed = 0; seed < 150 / kFewer; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const ProgramText text = RandomProgram(&rng, Precision::kFloat32, true);
    const auto given = RandomGiven(text, 3, &rng);
    const Results results = RunProgram(*Build(text), given->tensors);
    const auto check = [&](std::vector<float>* where, const std::vector<float>& gradient) {
      if (where->empty()) return;
      const size_t at = rng.Below(where->size());
      const float before = (*where)[at];
      const float above = before + 0x1p-7f, below = before - 0x1p-7f;
      (*where)[at] = above;
      const double high = Total(RunModel(text, *given), *given);
      (*where)[at] = below;
      const double low = Total(RunModel(text, *given), *given);
      (*where)[at] = before;
      const double slope = (high - low) / (static_cast<double>(above) - static_cast<double>(below));
      EXPECT_NEAR(gradient[at], slope, 2e-3 * std::max(1.0, std::abs(slope)));
    };
    for (size_t i = 0; i < given->tensors.inputs.size(); ++i) {
      check(&given->tensors.inputs[i], results.input_gradients[i]);
    }
    for (size_t i = 0; i < given->tensors.parameters.size(); ++i) {
      check(&given->tensors.parameters[i], results.parameter_gradients[i]);
    }
  }
}

// A number that is computed of a NaN is NaN: no layer may swallow it.
TEST_F(DensePrograms, ANaNOfOneRowStaysInItsRowAndIsSeenThere) {
  Rng rng(11);
  for (size_t seed = 0; seed < 200 / kFewer; ++seed) {
    const ProgramText text = RandomProgram(&rng, Precision::kFloat32);
    const auto program = Build(text);
    const auto given = RandomGiven(text, 70, &rng);
    const Results before = RunProgram(*program, given->tensors);
    for (size_t i = 0; i < text.inputs.size(); ++i) {
      given->tensors.inputs[i][5 * text.inputs[i].width] = std::nanf("");
    }
    const Results after = RunProgram(*program, given->tensors);
    for (size_t i = 0; i < text.outputs.size(); ++i) {
      const int64_t width = text.outputs[i].width;
      for (int64_t j = 0; j < 70 * width; ++j) {
        if (j / width == 5 && std::isnan(after.outputs[i][j])) continue;
        ASSERT_TRUE(SameBits(&before.outputs[i][j], &after.outputs[i][j], 1)) << seed;
      }
    }
  }
}

TEST_F(DenseProgramThreads, SameBitsForAnyNumber) {
  for (const Precision precision : {Precision::kFloat32, Precision::kRoundedFloat32}) {
    for (size_t seed = 0; seed < 60 / kFewer; ++seed) {
      SCOPED_TRACE(seed);
      Rng rng(seed);
      const ProgramText text = RandomProgram(&rng, precision);
      const auto program = Build(text);
      const auto given = RandomGiven(text, 1 + static_cast<int64_t>(rng.Below(3000)), &rng);
      std::vector<Results> results;
      for (const int threads : {1, 2, 7}) {
        const Threads scope(threads);
        results.push_back(RunProgram(*program, given->tensors));
      }
      ASSERT_TRUE(SameResults(results[0], results[1]));
      ASSERT_TRUE(SameResults(results[0], results[2]));
    }
  }
}

TEST_F(DenseProgramThreads, SeveralCallersOfOneProgram) {
  const Threads scope(3);
  for (size_t seed = 0; seed < 20 / std::min<size_t>(kFewer, 5); ++seed) {
    Rng rng(seed);
    const ProgramText text = RandomProgram(&rng, Precision::kFloat32);
    const auto program = Build(text);
    const auto given = RandomGiven(text, 200, &rng);
    const auto other = RandomGiven(text, 33, &rng);
    const Results expected = RunProgram(*program, given->tensors);
    const Results others = RunProgram(*program, other->tensors);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&, caller] {
        for (int i = 0; i < 5; ++i) {
          const bool first = (caller + i) % 2 == 0;
          const Results got = RunProgram(*program, first ? given->tensors : other->tensors);
          EXPECT_TRUE(SameResults(got, first ? expected : others));
        }
      });
    }
    for (auto& thread : callers) thread.join();
  }
}

TEST(DenseSlices, CoverTheBatch) {
  for (int64_t batch = 0; batch <= 5000; ++batch) {
    const int64_t rows = SliceRows(batch);
    ASSERT_GE(rows, 16);
    ASSERT_LE(rows, 256);
    const int64_t slices = (batch + rows - 1) / rows;
    if (batch <= 8 * 256) {
      ASSERT_EQ(rows % 16, 0);
    } else {  // even slices, which few rows fill up
      ASSERT_EQ(rows % 2, 0);
      ASSERT_EQ(slices % 8, 0);
      ASSERT_LT(slices * rows - batch, 3 * slices);
    }
    ASSERT_LT(slices * rows - batch, rows);
    if (batch > 512) ASSERT_GE(slices, 4);
  }
}

}  // namespace
}  // namespace msrec
