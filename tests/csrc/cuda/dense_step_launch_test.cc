// SPDX-License-Identifier: Apache-2.0
//
// Optimizer steps on a device: the numbers of the host's.
#include "cuda/dense_step_launch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "emulated_device.h"
#include "rules.h"
#include "testing.h"

namespace msrec {
namespace {

// A dense parameter of n numbers.
struct Parameter {
  explicit Parameter(int n) {
    Rng rng(3);
    w = rng.Floats(static_cast<size_t>(n));
    g = rng.Floats(static_cast<size_t>(n));
    for (auto& state : states) state = rng.Floats(static_cast<size_t>(n), 0.1f, 1.0f);
  }

  int size() const { return static_cast<int>(w.size()); }

  std::vector<float> w, g, states[3];
};

void StepOnHost(const StepConstants& constants, Parameter* p) {
  float* states[3] = {p->states[0].data(), p->states[1].data(), p->states[2].data()};
  FindKernels("base")->step_dense(constants, p->size(), p->w.data(), states, p->g.data());
}

// States that the rule does not have are null.
void StepOnDevice(const StepConstants& constants, Parameter* p) {
  float* states[3] = {};
  for (int k = 0; k < constants.rule.StateWidth(1); ++k) states[k] = p->states[k].data();
  EmulatedDevice device;
  LaunchDenseStep(&device, constants.rule, constants, p->w.size(), p->w.data(), states,
                  p->g.data());
}

void ExpectSame(const Parameter& a, const Parameter& b) {
  const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i]) && std::isnan(y[i])) continue;
      ASSERT_TRUE(SameBits(&x[i], &y[i], 1)) << i << ": " << x[i] << " and " << y[i];
    }
  };
  same(a.w, b.w);
  for (int k = 0; k < 3; ++k) same(a.states[k], b.states[k]);
}

// Calls test(constants) for each rule, with and without decay.
template <typename Test>
void ForConstants(const Test& test) {
  for (const Rule& rule : EveryRule()) {
    if (rule.kind == RuleKind::kRowWiseAdagrad) continue;
    for (const float decay : {0.0f, 0.01f}) {
      for (const int64_t step : {1, 50}) {
        StepInput input;
        input.learning_rate = 0.05f;
        input.weight_decay = decay;
        input.grad_scale = 0.5f;
        input.step = step;
        SCOPED_TRACE(static_cast<int>(rule.kind));
        test(MakeStepConstants(rule, input));
      }
    }
  }
}

TEST(LaunchDenseStep, StepsAsTheHostDoes) {
  ForConstants([](const StepConstants& constants) {
    for (const int n : {0, 1, 7, 1000}) {
      Parameter host(n), device(n);
      for (int step = 0; step < 3; ++step) {
        StepOnHost(constants, &host);
        StepOnDevice(constants, &device);
      }
      ExpectSame(host, device);
    }
  });
}

TEST(LaunchDenseStep, StepsOfSpecialNumbers) {
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {std::nanf(""), inf, -inf, 0.0f, -0.0f};
  ForConstants([&](const StepConstants& constants) {
    Parameter host(25);
    for (size_t i = 0; i < 25; ++i) {
      host.w[i] = special[i / 5];
      host.g[i] = special[i % 5];
    }
    Parameter device = host;
    StepOnHost(constants, &host);
    StepOnDevice(constants, &device);
    ExpectSame(host, device);
  });
}

TEST(LaunchDenseStep, RowWiseAdagradIsAdagrad) {
  Rule rule;
  rule.kind = RuleKind::kRowWiseAdagrad;
  StepInput input;
  input.learning_rate = 0.1f;
  const StepConstants constants = MakeStepConstants(rule, input);
  Parameter host(9), device(9);
  StepOnDevice(constants, &device);
  rule.kind = RuleKind::kAdagrad;
  StepOnHost(MakeStepConstants(rule, input), &host);
  ExpectSame(host, device);
}

TEST(LaunchDenseStep, NoRuleChangesNothing) {
  Parameter before(9), after(9);
  StepOnDevice(MakeStepConstants(Rule{}, StepInput{}), &after);
  ExpectSame(before, after);
}

}  // namespace
}  // namespace msrec
