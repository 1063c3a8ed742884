// SPDX-License-Identifier: Apache-2.0
//
// The gated attention, the steps of the target attention and the activations: equal bits of all
// instruction sets and any number of threads, and gradients by differences.
#include "sequence/pooling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "sequence/activations.h"
#include "sequence/hstu.h"
#include "sequence/sequence_kernels.h"
#include "testing.h"

namespace msrec {
namespace {

using Numbers = std::vector<float>;

Numbers DrawnNumbers(int64_t n, uint64_t seed) {
  Rng rng(seed);
  Numbers x(static_cast<size_t>(n));
  for (float& each : x) each = rng.Float(-1.0f, 1.0f);
  return x;
}

double DotOfNumbers(const Numbers& a, const Numbers& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Checks a gradient of the sum of outputs times `weights` by a difference along a random direction.
void ExpectGradient(const std::function<Numbers(const Numbers&)>& forward, const Numbers& x,
                    const Numbers& weights, const Numbers& gradient) {
  const Numbers direction = DrawnNumbers(static_cast<int64_t>(x.size()), 77);
  const auto at = [&](float step) {
    Numbers moved = x;
    for (size_t i = 0; i < x.size(); ++i) moved[i] += step * direction[i];
    return DotOfNumbers(forward(moved), weights);
  };
  const double expected = DotOfNumbers(gradient, direction);
  EXPECT_NEAR((at(2e-3f) - at(-2e-3f)) / 4e-3, expected, 2e-2 * std::max(1.0, std::fabs(expected)));
}

const std::vector<int64_t> kOffsets = {0, 4, 4, 23, 24};
Lists FourLists() { return Lists(kOffsets.data(), 4, 24); }

TEST(GatedAttention, GradientByDifferences) {
  ThreadPool pool(2);
  const int64_t width = 6;
  const Numbers projected = DrawnNumbers(24 * 4 * width, 1), weights = DrawnNumbers(24 * width, 2);
  const Numbers scale = DrawnNumbers(width, 3), shift = DrawnNumbers(width, 4);
  const Numbers distances = DrawnNumbers(5, 5);
  AttentionForm form;
  form.kind = Attention::kSilu;
  form.heads = 2;
  form.dim = 3;
  form.weight_scale = 0.2f;
  form.by_distance = distances.data();
  form.distances = 5;
  const RowScales norm = {scale.data(), shift.data(), 1e-2f};
  Numbers attended(24 * width), output(24 * width);
  const auto forward = [&](const Numbers& x) {
    GatedAttend(form, norm, FourLists(), x.data(), attended.data(), output.data(), &pool);
    return output;
  };
  forward(projected);
  const auto gradient = [&](ThreadPool* threads) {
    Numbers found(24 * 4 * width + 5 + 2 * width);
    float* of_distances = found.data() + 24 * 4 * width;
    GatedAttendGradient(
        form, norm, FourLists(), {projected.data(), attended.data()}, weights.data(),
        {found.data(), of_distances, nullptr, of_distances + 5, of_distances + 5 + width}, threads);
    return found;
  };
  const Numbers found = gradient(&pool);
  ThreadPool one(1);
  EXPECT_EQ(found, gradient(&one));
  ExpectGradient(forward, projected, weights, Numbers(found.begin(), found.end() - 5 - 2 * width));
}

TEST(TargetPooling, GradientsByDifferences) {
  ThreadPool pool(3);
  const Lists lists = FourLists();
  const Numbers values = DrawnNumbers(24 * 5, 1), candidates = DrawnNumbers(4 * 5, 2);
  const Numbers of_pairs = DrawnNumbers(24 * 10, 3), scores = DrawnNumbers(24, 4);
  Numbers of_candidates(20), of_values(120), pairs(240);
  PairValuesGradient(lists, 5, candidates.data(), values.data(), of_pairs.data(),
                     of_candidates.data(), of_values.data(), &pool);
  const auto pair = [&](const Numbers& c, const Numbers& v) {
    PairValues(lists, 5, c.data(), v.data(), pairs.data(), &pool);
    return pairs;
  };
  ExpectGradient([&](const Numbers& v) { return pair(candidates, v); }, values, of_pairs,
                 of_values);
  ExpectGradient([&](const Numbers& c) { return pair(c, values); }, candidates, of_pairs,
                 of_candidates);
  for (const bool softmax : {false, true}) {
    const Numbers of_sums = DrawnNumbers(20, 5);
    Numbers weights(24), sums(20), of_scores(24);
    const auto pooled = [&](const Numbers& s, const Numbers& v) {
      PoolValues({5, softmax}, lists, s.data(), v.data(), weights.data(), sums.data(), &pool);
      return sums;
    };
    pooled(scores, values);
    EXPECT_EQ(sums[5], 0.0f);  // of the empty list
    PoolValuesGradient({5, softmax}, lists, Numbers(weights).data(), values.data(), of_sums.data(),
                       of_scores.data(), of_values.data(), &pool);
    ExpectGradient([&](const Numbers& s) { return pooled(s, values); }, scores, of_sums, of_scores);
    ExpectGradient([&](const Numbers& v) { return pooled(scores, v); }, values, of_sums, of_values);
  }
  Numbers added(24 * 5), summed(20);
  AddRows(lists, 5, values.data(), candidates.data(), added.data(), &pool);
  EXPECT_EQ(added[23 * 5], values[23 * 5] + candidates[15]);
  SumRows(lists, 5, Numbers(120, 1.0f).data(), summed.data(), &pool);
  EXPECT_EQ(summed[0], 4.0f);
  EXPECT_EQ(summed[5], 0.0f);
  EXPECT_EQ(summed[10], 19.0f);
}

TEST(Dice, GradientByDifferences) {
  ThreadPool pool(2);
  const int64_t rows = 600;
  for (const int64_t width : {3, 27}) {
    const Numbers x = DrawnNumbers(rows * width, 1), weights = DrawnNumbers(rows * width, 2);
    const Numbers alpha = DrawnNumbers(width, 3);
    for (const bool of_batch : {true, false}) {
      Numbers mean(width), variance(width), output(x.size()), of_x(x.size()), of_alpha(width);
      Moments(rows, width, x.data(), mean.data(), variance.data(), &pool);
      const auto run = [&](const Numbers& given, const Numbers& slopes) {
        if (of_batch) Moments(rows, width, given.data(), mean.data(), variance.data(), &pool);
        Dice({rows, width, slopes.data(), mean.data(), variance.data(), 1e-4f, of_batch},
             given.data(), output.data(), &pool);
        return output;
      };
      run(x, alpha);
      DiceGradientOf({rows, width, alpha.data(), mean.data(), variance.data(), 1e-4f, of_batch},
                     x.data(), weights.data(), of_x.data(), of_alpha.data(), &pool);
      ExpectGradient([&](const Numbers& given) { return run(given, alpha); }, x, weights, of_x);
      ExpectGradient([&](const Numbers& slopes) { return run(x, slopes); }, alpha, weights,
                     of_alpha);
    }
  }
}

TEST(SequenceKernels, SetsGiveTheSameBits) {
  const int64_t rows = 30, width = 29;
  const Numbers x = DrawnNumbers(rows * width, 1), g = DrawnNumbers(rows * width, 2);
  const Numbers alpha = DrawnNumbers(width, 3);
  AttentionForm form;
  form.kind = Attention::kSilu;
  form.dim = 7;
  const Numbers projected = DrawnNumbers(rows * 28, 5);
  const auto run = [&](const SequenceKernels& set) {
    Numbers moments(2 * width), found(rows * width), gradient(rows * width), sums(4 * width);
    set.column_moments(rows, width, x.data(), moments.data(), moments.data() + width);
    const DiceColumns columns = {alpha.data(), moments.data(), moments.data() + width};
    set.dice_rows(rows, width, x.data(), columns, found.data());
    const DiceSlopes slopes = {sums.data(), sums.data() + width, sums.data() + 2 * width};
    set.dice_sums(rows, width, x.data(), columns, g.data(), slopes);
    set.dice_gradient(rows, width, x.data(), columns, g.data(), slopes, gradient.data());
    Numbers rectified(rows * width), of_rectified(rows * width);
    set.prelu_rows(rows, width, x.data(), alpha.data(), rectified.data());
    set.prelu_gradient(rows, width, x.data(), alpha.data(), g.data(), of_rectified.data(),
                       sums.data() + 3 * width);
    Numbers attended(rows * 7), output(rows * 7), of_projected(rows * 28), of_norm(14);
    Numbers memory(static_cast<size_t>(set.gated_memory(form, rows)));
    const RowScales norm = {alpha.data(), alpha.data(), 1e-5f};
    const AttentionList list = {rows, projected.data(), nullptr};
    set.gated_attend(form, list, norm, attended.data(), output.data(), memory.data());
    set.gated_attend_gradient(form, list, norm, attended.data(), g.data(), of_projected.data(),
                              {{nullptr, nullptr}, of_norm.data(), of_norm.data() + 7},
                              memory.data());
    Numbers softmax = alpha;
    set.softmax_list(width, softmax.data());
    softmax.push_back(set.dot(width, x.data(), g.data()));
    for (const Numbers* each : {&moments, &gradient, &sums, &rectified, &of_rectified, &output,
                                &of_projected, &of_norm, &softmax}) {
      found.insert(found.end(), each->begin(), each->end());
    }
    return found;
  };
  const Numbers base = run(*FindSequenceKernels("base"));
  for (const char* name : {"avx2", "avx512"}) {
    const SequenceKernels* set = FindSequenceKernels(name);
    if (set == nullptr) continue;
    EXPECT_EQ(0, std::memcmp(run(*set).data(), base.data(), 4 * base.size())) << name;
  }
}

}  // namespace
}  // namespace msrec
