// SPDX-License-Identifier: Apache-2.0
//
// The target attention against its formula in double, its gradients by differences, and equal bits
// for any number of threads. The numbers of rows reach from no block to several blocks, and one
// list spans several blocks.
#include "sequence/target_attention.h"

#include <cstring>

#include "differences.h"
#include "sequence/target_blocks.h"
#include "sequence/target_gradient.h"

namespace msrec {
namespace {

struct TargetCase {
  TargetCase(const std::vector<int64_t>& lengths, const std::vector<int64_t>& widths, bool dice,
             bool of_batch, bool softmax) {
    for (const int64_t n : lengths) offsets.push_back(offsets.back() + n);
    form.dim = kDim;
    form.dice = dice;
    form.of_batch = of_batch;
    form.softmax = softmax;
    form.epsilon = 1e-3f;
    int64_t before = 4 * kDim, at = 0;
    for (const int64_t width : widths) {
      at += width * (before + 2);
      before = width;
    }
    learned = DrawnNumbers(at + before + 1, 3);
    moments.assign(static_cast<size_t>(2 * at), 0.7f);
    float* moment = moments.data();
    for (const int64_t width : widths) {
      form.layers.push_back({width, nullptr, nullptr, nullptr, moment, moment + width});
      moment += 2 * width;
    }
    candidates = DrawnNumbers(static_cast<int64_t>(lengths.size()) * kDim, 1);
    values = DrawnNumbers(offsets.back() * kDim, 2);
    Place(learned.data());
  }

  // Reads the parameters from `from`: for each layer weight, bias and alpha, then the last layer.
  void Place(const float* from) {
    int64_t before = 4 * kDim;
    for (TargetLayer& layer : form.layers) {
      layer.weight = from;
      layer.bias = from + layer.width * before;
      layer.alpha = layer.bias + layer.width;
      from = layer.alpha + layer.width;
      before = layer.width;
    }
    form.last_weight = from;
    form.last_bias = from[before];
  }

  Lists lists() const {
    return Lists(offsets.data(), static_cast<int64_t>(offsets.size()) - 1, offsets.back());
  }

  Numbers Sums(const Numbers& c, const Numbers& v, const Numbers& parameters, ThreadPool* pool) {
    Place(parameters.data());
    inputs.assign(static_cast<size_t>(TargetRows(offsets.back()) * form.widths()), NAN);
    weights.assign(static_cast<size_t>(offsets.back()), NAN);
    Numbers sums(candidates.size(), NAN);
    TargetAttend(form, lists(), {c.data(), v.data()}, {inputs.data(), weights.data()}, sums.data(),
                 pool);
    return sums;
  }

  // Returns the gradients of candidates, values and parameters.
  std::vector<Numbers> Gradients(const Numbers& of_sums, ThreadPool* pool) {
    Sums(candidates, values, learned, pool);
    std::vector<int64_t> widths;
    for (const TargetLayer& layer : form.layers) widths.push_back(layer.width);
    Numbers memory(static_cast<size_t>(TargetRows(offsets.back()) * TargetMemoryWidth(widths)),
                   NAN);
    std::vector<Numbers> found = {Numbers(candidates.size(), NAN), Numbers(values.size(), NAN),
                                  Numbers(learned.size(), NAN)};
    TargetGradient gradient{found[0].data(), found[1].data(), {}, nullptr, nullptr};
    float* at = found[2].data();
    int64_t before = 4 * kDim;
    for (const int64_t width : widths) {
      gradient.layers.push_back({at, at + width * before, at + width * (before + 1)});
      at += width * (before + 2);
      before = width;
    }
    gradient.last_weight = at;
    gradient.last_bias = at + before;
    TargetAttendGradient(form, lists(), {candidates.data(), values.data()},
                         {inputs.data(), weights.data()}, of_sums.data(), gradient, memory.data(),
                         pool);
    return found;
  }

  static constexpr int64_t kDim = 3;
  std::vector<int64_t> offsets{0};
  Numbers candidates, values, learned, moments, inputs, weights;
  TargetForm form;
};

const std::vector<std::vector<int64_t>> kLengths = {
    {0, 0}, {1}, {4, 0, 19, 1}, {40, 700, 0, 3, 2, 90, 300}};

template <typename Fn>
void ForCases(const Fn& fn) {
  for (const auto& lengths : kLengths) {
    for (const std::vector<int64_t>& widths : {std::vector<int64_t>{5}, {4, 3}, {6, 2, 5}}) {
      for (const int kind : {0, 1, 2}) {
        TargetCase each(lengths, widths, kind != 0, kind == 2, widths.size() == 2);
        fn(&each);
      }
    }
  }
}

// One list at a time, in double.
std::vector<double> Formula(const TargetCase& all) {
  const int64_t dim = TargetCase::kDim, values = all.offsets.back();
  std::vector<double> x, output;
  const Lists lists = all.lists();
  for (int64_t j = 0; j < values; ++j) {
    const float* c = all.candidates.data() + lists.ListOf(j) * dim;
    const float* v = all.values.data() + j * dim;
    for (int64_t i = 0; i < dim; ++i) output.push_back(c[i]);
    for (int64_t i = 0; i < dim; ++i) output.push_back(v[i]);
    for (int64_t i = 0; i < dim; ++i) output.push_back(c[i] - v[i]);
    for (int64_t i = 0; i < dim; ++i) output.push_back(c[i] * v[i]);
  }
  const auto linear = [&](int64_t before, int64_t width, const float* weight, const float* bias) {
    x.assign(static_cast<size_t>(values * width), 0.0);
    for (int64_t j = 0; j < values; ++j) {
      for (int64_t o = 0; o < width; ++o) {
        double sum = bias[o];
        for (int64_t i = 0; i < before; ++i) sum += output[j * before + i] * weight[o * before + i];
        x[static_cast<size_t>(j * width + o)] = sum;
      }
    }
  };
  int64_t before = 4 * dim;
  for (const TargetLayer& layer : all.form.layers) {
    linear(before, layer.width, layer.weight, layer.bias);
    output = x;
    for (int64_t o = 0; o < layer.width; ++o) {
      double mean = 0.7, variance = 0.7;
      if (all.form.of_batch) {
        mean = variance = 0.0;
        for (int64_t j = 0; j < values; ++j) mean += x[j * layer.width + o] / values;
        for (int64_t j = 0; j < values; ++j) {
          variance += std::pow(x[j * layer.width + o] - mean, 2.0) / values;
        }
      }
      for (int64_t j = 0; j < values; ++j) {
        double& y = output[static_cast<size_t>(j * layer.width + o)];
        const double deviation = std::sqrt(variance + all.form.epsilon);
        const double p = all.form.dice ? 1 / (1 + std::exp(-(y - mean) / deviation)) : y > 0;
        y *= p + (1 - p) * layer.alpha[o];
      }
    }
    before = layer.width;
  }
  linear(before, 1, all.form.last_weight, &all.form.last_bias);
  std::vector<double> sums(static_cast<size_t>(lists.count() * dim));
  for (int64_t i = 0; i < lists.count(); ++i) {
    double total = 0.0;
    for (int64_t j = lists.begin(i); j < lists.begin(i) + lists.length(i); ++j) {
      total += std::exp(x[j]);
    }
    for (int64_t d = 0; d < dim; ++d) {
      double sum = 0.0;
      for (int64_t j = lists.begin(i); j < lists.begin(i) + lists.length(i); ++j) {
        sum += (all.form.softmax ? std::exp(x[j]) / total : x[j]) * all.values[j * dim + d];
      }
      sums[static_cast<size_t>(i * dim + d)] = sum;
    }
  }
  return sums;
}

TEST(TargetAttention, IsTheFormula) {
  ThreadPool pool(2);
  ForCases([&](TargetCase* each) {
    const Numbers sums = each->Sums(each->candidates, each->values, each->learned, &pool);
    const std::vector<double> expected = Formula(*each);
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_NEAR(sums[i], expected[i], 1e-4 * std::max(1.0, std::fabs(expected[i])));
    }
  });
}

// Differences of the formula, because differences of float32 results are not exact enough for the
// sums of long lists.
TEST(TargetAttention, GradientsByDifferences) {
  ThreadPool pool(3);
  ForCases([&](TargetCase* each) {
    const Numbers of_sums = DrawnNumbers(static_cast<int64_t>(each->candidates.size()), 5);
    const std::vector<Numbers> gradients = each->Gradients(of_sums, &pool);
    const std::vector<Numbers*> inputs = {&each->candidates, &each->values, &each->learned};
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Numbers from = *inputs[i];
      const Numbers direction = DrawnNumbers(static_cast<int64_t>(from.size()), 77);
      const auto at = [&](float step) {
        for (size_t j = 0; j < from.size(); ++j) (*inputs[i])[j] = from[j] + step * direction[j];
        each->Place(each->learned.data());
        const std::vector<double> sums = Formula(*each);
        *inputs[i] = from;
        double loss = 0.0;
        for (size_t j = 0; j < sums.size(); ++j) loss += sums[j] * of_sums[j];
        return loss;
      };
      const double expected = (at(2e-4f) - at(-2e-4f)) / 4e-4;
      EXPECT_NEAR(DotOfNumbers(gradients[i], direction), expected,
                  1e-2 * std::max(1.0, std::fabs(expected)))
          << "input " << i;
    }
  });
}

TEST(TargetAttention, RoundedFactorsAreNearTheFormula) {
  ThreadPool pool(2);
  ForCases([&](TargetCase* each) {
    const Numbers exact = each->Sums(each->candidates, each->values, each->learned, &pool);
    const std::vector<double> expected = Formula(*each);
    each->form.precision = Precision::kRoundedFloat32;
    const Numbers sums = each->Sums(each->candidates, each->values, each->learned, &pool);
    double error = 0.0, size = 0.0;
    for (size_t i = 0; i < sums.size(); ++i) {
      error += std::pow(sums[i] - expected[i], 2.0);
      size += std::pow(expected[i], 2.0);
    }
    EXPECT_LE(std::sqrt(error), 5e-2 * std::sqrt(size));
    // The softmax of one score is 1.
    if (each->offsets.back() > 1) EXPECT_NE(sums, exact);
  });
}

TEST(TargetAttention, ThreadsGiveTheSameBits) {
  ThreadPool one(1), five(5);
  ForCases([&](TargetCase* each) {
    const Numbers of_sums = DrawnNumbers(static_cast<int64_t>(each->candidates.size()), 5);
    EXPECT_EQ(each->Gradients(of_sums, &one), each->Gradients(of_sums, &five));
  });
}

}  // namespace
}  // namespace msrec
