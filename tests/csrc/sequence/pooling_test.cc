// SPDX-License-Identifier: Apache-2.0
//
// The gated attention, pooling and the activations: equal bits of all instruction sets and any
// number of threads, and gradients by differences.
#include "sequence/pooling.h"

#include <cstring>

#include "differences.h"
#include "sequence/activations.h"
#include "sequence/hstu.h"
#include "sequence/sequence_kernels.h"

namespace msrec {
namespace {

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

TEST(Pooling, GradientsByDifferences) {
  ThreadPool pool(3);
  const Lists lists = FourLists();
  const Numbers values = DrawnNumbers(24 * 5, 1), scores = DrawnNumbers(24, 4);
  for (const bool softmax : {false, true}) {
    const Numbers of_sums = DrawnNumbers(20, 5);
    Numbers weights, sums(20), of_scores(24), of_values(120);
    const auto pooled = [&](const Numbers& s, const Numbers& v) {
      weights = s;
      PoolValues({5, softmax}, lists, v.data(), weights.data(), sums.data(), &pool);
      return sums;
    };
    pooled(scores, values);
    EXPECT_EQ(sums[5], 0.0f);  // of the empty list
    PoolValuesGradient({5, softmax}, lists, Numbers(weights).data(), values.data(), of_sums.data(),
                       of_scores.data(), of_values.data(), &pool);
    ExpectGradient([&](const Numbers& s) { return pooled(s, values); }, scores, of_sums, of_scores);
    ExpectGradient([&](const Numbers& v) { return pooled(scores, v); }, values, of_sums, of_values);
  }
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
    Numbers gates(rows * width), sums_of_gates(3 * width);
    set.dice_rows(rows, width, x.data(), columns, found.data(), gates.data());
    const DiceSlopes slopes = {sums.data(), sums.data() + width, sums.data() + 2 * width};
    set.dice_sums(rows, width, x.data(), columns, nullptr, g.data(), slopes);
    set.dice_sums(
        rows, width, x.data(), columns, gates.data(), g.data(),
        {sums_of_gates.data(), sums_of_gates.data() + width, sums_of_gates.data() + 2 * width});
    EXPECT_EQ(0, std::memcmp(sums.data(), sums_of_gates.data(), sizeof(float) * 3 * width));
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
    Numbers pairs(rows * 2 * width), of_pairs(rows * width), row(width), dots(rows);
    set.pair_rows(rows, width, alpha.data(), x.data(), pairs.data());
    set.weigh_rows(rows, width, g.data(), alpha.data(), of_pairs.data());
    set.pair_rows_gradient(rows, width, alpha.data(), x.data(), pairs.data(), of_pairs.data(),
                           row.data());
    set.add_row(rows, width, alpha.data(), of_pairs.data());
    set.sum_rows(rows, width, x.data(), row.data());
    set.sum_weighted(rows, width, g.data(), x.data(), row.data());
    set.dot_rows(rows, width, x.data(), g.data(), 0.5f, dots.data());
    SmallShape shape = {};
    shape.m = shape.n = shape.ldb = shape.ldc = width;
    shape.k = rows;
    shape.row_step = 1;
    shape.step = width;
    Numbers product(width * width);
    set.multiply(shape, x.data(), g.data(), product.data());
    for (const Numbers* each :
         {&moments, &gates, &gradient, &sums, &rectified, &of_rectified, &output, &of_projected,
          &of_norm, &softmax, &pairs, &of_pairs, &row, &dots, &product}) {
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
