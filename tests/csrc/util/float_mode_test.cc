// SPDX-License-Identifier: Apache-2.0
//
// The bits of rows do not depend on the floating-point mode of the thread that calls, nor on that
// of the thread which started the pool.
#include "util/float_mode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "hostile_float_mode.h"
#include "rules.h"
#include "table/table.h"
#include "testing.h"

namespace msrec {
namespace {

TEST(FloatMode, IsTheDefaultWithinAndRestoredAfter) {
  const uint64_t before = ReadMode();
  volatile float tiny = std::numeric_limits<float>::min();
  {
    const HostileMode hostile;
    EXPECT_EQ(tiny * 0.5f, 0.0f) << "the test's own mode flushes";
    {
      const DefaultFloatMode mode;
      EXPECT_NE(tiny * 0.5f, 0.0f);
      EXPECT_EQ(std::fegetround(), FE_TONEAREST);
    }
    EXPECT_EQ(ReadMode(), kHostile);
    try {
      const DefaultFloatMode mode;
      throw 1;
    } catch (int) {
    }
    EXPECT_EQ(ReadMode(), kHostile);
  }
  EXPECT_EQ(ReadMode(), before);
}

// Values, states and gradients of that size. Every call on the table is made in the hostile mode,
// where one is asked for; what it is given is computed before.
std::vector<float> LifeOf(RuleKind kind, float size, bool hostile) {
  constexpr size_t n = 3000;  // enough for the pool
  constexpr int kDim = 8, kSteps = 3;
  Rng rng(1);
  std::vector<std::vector<int64_t>> ids;
  std::vector<std::vector<float>> grads;
  for (int step = 0; step < kSteps; ++step) {
    ids.push_back(rng.Keys(n, 2000));
    grads.push_back(rng.Floats(n * kDim, -size, size));
  }
  TableConfig config;
  config.name = "tiny";
  config.dim = kDim;
  config.initializer.kind = size < 1e-30f ? InitKind::kUniform : InitKind::kNormal;
  config.initializer.a = -size;
  config.initializer.b = size;
  Rule rule;
  rule.kind = kind;
  rule.momentum = 0.9f;
  rule.initial_accumulator = size;
  std::vector<float> bits;
  const std::unique_ptr<HostileMode> mode(hostile ? new HostileMode : nullptr);
  Table table(config);
  table.BindOptimizer(rule);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> out(n * kDim);
    const int64_t ticket = table.LookupTrain({ids[step].data(), n, true}, {}, out.data());
    table.Accumulate(ticket, grads[step].data(), n);
    bits.insert(bits.end(), out.begin(), out.end());
    const double norm = table.GradientSquaredNorm();
    const auto* words = reinterpret_cast<const float*>(&norm);
    bits.insert(bits.end(), words, words + 2);
    table.Step({0.05f, 0, 1, step + 1, 0});
  }
  const ExportedRows rows = table.Export(true);
  bits.insert(bits.end(), rows.values.get(), rows.values.get() + rows.n * kDim);
  bits.insert(bits.end(), rows.states.get(), rows.states.get() + rows.n * rows.state_width);
  if (hostile) EXPECT_EQ(ReadMode(), kHostile);
  return bits;
}

size_t Denormals(const std::vector<float>& floats) {
  size_t denormals = 0;
  for (const float f : floats) denormals += std::fpclassify(f) == FP_SUBNORMAL;
  return denormals;
}

TEST(FloatMode, OfTheCallerChangesNoBit) {
  for (const RuleKind kind : kEveryRuleKind) {
    for (const float size : {1e-38f, 0.1f}) {
      const auto expected = LifeOf(kind, size, false);
      if (size < 1e-30f && kind == RuleKind::kSgd) {
        ASSERT_GT(Denormals(expected), expected.size() / 2);
      }
      for (const int n : {1, 2, 3}) {
        const Threads threads(n);
        EXPECT_TRUE(SameBits(LifeOf(kind, size, true), expected))
            << n << " threads, rule " << static_cast<int>(kind) << ", size " << size;
      }
    }
  }
}

TEST(FloatMode, OfWhoeverStartedThePoolChangesNoBit) {
  const auto expected = LifeOf(RuleKind::kMomentum, 1e-38f, false);
  for (const int n : {2, 3}) {
    std::unique_ptr<Threads> threads;
    {
      const HostileMode hostile;
      threads = std::make_unique<Threads>(n);
    }
    EXPECT_TRUE(SameBits(LifeOf(RuleKind::kMomentum, 1e-38f, false), expected)) << n << " threads";
  }
  // The pool's tasks, wherever they run.
  volatile float tiny = std::numeric_limits<float>::min();
  for (const int n : {1, 2}) {
    const HostileMode hostile;
    ThreadPool pool(n);
    std::vector<int> kept(64);
    pool.ParallelFor(64, [&](int64_t task) { kept[task] = tiny * 0.5f != 0.0f; });
    EXPECT_EQ(std::count(kept.begin(), kept.end(), 1), 64) << n << " threads";
  }
}

}  // namespace
}  // namespace msrec
