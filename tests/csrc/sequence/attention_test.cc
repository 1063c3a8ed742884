// SPDX-License-Identifier: Apache-2.0
//
// Attention over lists against its formula in double, on every instruction set and any number of
// threads.
#include "sequence/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "sequence/sequence_kernels.h"
#include "testing.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

struct AttentionCase {
  std::vector<int64_t> offsets{0};
  std::vector<float> qkv, of_output, by_distance, by_time;
  std::vector<int64_t> times;
  AttentionForm form;

  AttentionCase(Attention kind, const std::vector<int64_t>& lengths, int64_t heads, int64_t dim,
                bool biased) {
    Rng rng(5);
    for (const int64_t n : lengths) offsets.push_back(offsets.back() + n);
    const auto fill = [&](std::vector<float>* x, int64_t n) {
      for (int64_t i = 0; i < n; ++i) x->push_back(rng.Float(-1.0f, 1.0f));
    };
    fill(&qkv, offsets.back() * 3 * heads * dim);
    fill(&of_output, offsets.back() * heads * dim);
    fill(&by_distance, 7);
    fill(&by_time, 9);
    int64_t time = 0;
    for (int64_t i = 0; i < offsets.back(); ++i) {
      time += int64_t{1} << (i * 7 % 12);
      times.push_back(i % 11 == 3 ? time - 90 : time);  // a few go back
    }
    form.kind = kind;
    form.heads = heads;
    form.dim = dim;
    form.score_scale = 0.5f;
    form.weight_scale = 0.25f;
    if (!biased) return;
    form.by_distance = by_distance.data();
    form.distances = 7;
    form.by_time = by_time.data();
    form.buckets = 9;
    form.times = times.data();
  }
  Lists lists() const {
    return Lists(offsets.data(), static_cast<int64_t>(offsets.size()) - 1, offsets.back());
  }
};

struct Outcome {
  std::vector<float> output, qkv, by_distance, by_time;

  explicit Outcome(const AttentionCase& of)
      : output(of.of_output.size()), qkv(of.qkv.size()), by_distance(7), by_time(9) {}
  bool operator==(const Outcome& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.empty() || std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
    };
    return same(output, other.output) && same(qkv, other.qkv) &&
           same(by_distance, other.by_distance) && same(by_time, other.by_time);
  }
};

Outcome OutcomeOf(const AttentionCase& of, int threads) {
  ThreadPool pool(threads);
  Outcome found(of);
  Attend(of.form, of.lists(), of.qkv.data(), found.output.data(), &pool);
  AttendGradient(of.form, of.lists(), of.qkv.data(), of.of_output.data(),
                 {found.qkv.data(), found.by_distance.data(), found.by_time.data()}, &pool);
  return found;
}

int64_t BucketOfDifference(int64_t difference, int64_t buckets) {
  int64_t bits = 0;
  for (int64_t d = std::max<int64_t>(difference, 0); d > 0; d /= 2) ++bits;
  return std::min(bits, buckets - 1);
}

// The formula, row by row.
Outcome Formula(const AttentionCase& of) {
  const AttentionForm& form = of.form;
  const int64_t width = form.heads * form.dim;
  std::vector<double> output(of.of_output.size()), qkv(of.qkv.size()), distances(7), buckets(9);
  for (size_t list = 0; list + 1 < of.offsets.size(); ++list) {
    for (int64_t i = of.offsets[list]; i < of.offsets[list + 1]; ++i) {
      for (int64_t head = 0; head < form.heads; ++head) {
        const auto at = [&](int64_t row, int64_t part) {
          return row * 3 * width + part * width + head * form.dim;
        };
        const int64_t begin = of.offsets[list];
        const int64_t n = i - begin + 1;
        std::vector<double> scores(n), weights(n), slopes(n);
        double total = 0.0;
        for (int64_t j = 0; j < n; ++j) {
          for (int64_t c = 0; c < form.dim; ++c) {
            scores[j] += form.score_scale * static_cast<double>(of.qkv[at(i, 0) + c]) *
                         of.qkv[at(begin + j, 1) + c];
          }
          if (form.by_time != nullptr) {
            scores[j] += of.by_distance[std::min<int64_t>(n - 1 - j, 6)];
            scores[j] += of.by_time[BucketOfDifference(of.times[i] - of.times[begin + j], 9)];
          }
          weights[j] = form.kind == Attention::kSoftmax
                           ? std::exp(scores[j])
                           : form.weight_scale * scores[j] / (1.0 + std::exp(-scores[j]));
          total += weights[j];
        }
        double mean = 0.0;
        for (int64_t j = 0; j < n; ++j) {
          if (form.kind == Attention::kSoftmax) weights[j] /= total;
          for (int64_t c = 0; c < form.dim; ++c) {
            const double given = of.of_output[i * width + head * form.dim + c];
            output[i * width + head * form.dim + c] += weights[j] * of.qkv[at(begin + j, 2) + c];
            slopes[j] += given * of.qkv[at(begin + j, 2) + c];
            qkv[at(begin + j, 2) + c] += weights[j] * given;
          }
          mean += weights[j] * slopes[j];
        }
        for (int64_t j = 0; j < n; ++j) {
          const double sigmoid = 1.0 / (1.0 + std::exp(-scores[j]));
          const double slope = form.kind == Attention::kSoftmax
                                   ? weights[j] * (slopes[j] - mean)
                                   : slopes[j] * form.weight_scale *
                                         (sigmoid + scores[j] * sigmoid * (1.0 - sigmoid));
          for (int64_t c = 0; c < form.dim; ++c) {
            qkv[at(i, 0) + c] += form.score_scale * slope * of.qkv[at(begin + j, 1) + c];
            qkv[at(begin + j, 1) + c] += form.score_scale * slope * of.qkv[at(i, 0) + c];
          }
          if (form.by_time == nullptr) continue;
          distances[std::min<int64_t>(n - 1 - j, 6)] += slope;
          buckets[BucketOfDifference(of.times[i] - of.times[begin + j], 9)] += slope;
        }
      }
    }
  }
  Outcome expected(of);
  const auto copy = [](const std::vector<double>& from, std::vector<float>* to) {
    std::copy(from.begin(), from.end(), to->begin());
  };
  copy(output, &expected.output);
  copy(qkv, &expected.qkv);
  copy(distances, &expected.by_distance);
  copy(buckets, &expected.by_time);
  return expected;
}

void ExpectNear(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  float most = 1.0f;
  for (const float x : expected) most = std::max(most, std::fabs(x));
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 2e-6f * most) << i;
  }
}

const std::vector<int64_t> kLengths = {3, 0, 17, 1, 40, 16, 0, 33};

TEST(Attention, IsTheFormula) {
  for (const Attention kind : {Attention::kSoftmax, Attention::kSilu}) {
    for (const bool biased : {false, true}) {
      for (const int64_t dim : {1, 5, 16}) {
        const AttentionCase of(kind, kLengths, 2, dim, biased);
        const Outcome found = OutcomeOf(of, 2);
        const Outcome expected = Formula(of);
        ExpectNear(found.output, expected.output);
        ExpectNear(found.qkv, expected.qkv);
        if (!biased) continue;
        ExpectNear(found.by_distance, expected.by_distance);
        ExpectNear(found.by_time, expected.by_time);
      }
    }
  }
}

TEST(Attention, ThreadsGiveTheSameBits) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 150; ++i) lengths.push_back(i * 37 % 41);
  for (const Attention kind : {Attention::kSoftmax, Attention::kSilu}) {
    const AttentionCase of(kind, lengths, 2, 4, true);
    EXPECT_TRUE(OutcomeOf(of, 1) == OutcomeOf(of, 3));
  }
}

TEST(Attention, SetsGiveTheSameBits) {
  const std::vector<int64_t> one = {70};
  for (const Attention kind : {Attention::kSoftmax, Attention::kSilu}) {
    const AttentionCase of(kind, one, 2, 20, true);
    const auto run = [&](const SequenceKernels& set) {
      Outcome found(of);
      std::vector<float> memory(static_cast<size_t>(set.attention_memory(of.form, 70)));
      std::vector<float> by_time(9 * kTimeLanes);
      const AttentionList list{70, of.qkv.data(), of.times.data()};
      set.attend(of.form, list, found.output.data(), memory.data());
      set.attend_gradient(of.form, list, of.of_output.data(), found.qkv.data(),
                          {found.by_distance.data(), by_time.data()}, memory.data());
      found.by_time = by_time;
      return found;
    };
    const Outcome base = run(*FindSequenceKernels("base"));
    for (const char* name : {"avx2", "avx512"}) {
      const SequenceKernels* set = FindSequenceKernels(name);
      if (set != nullptr) EXPECT_TRUE(run(*set) == base) << name;
    }
  }
}

TEST(Attention, ALongListNeedsLittleMemory) {
  AttentionForm form;
  form.heads = 2;
  form.dim = 16;
  // Less than 3 MB, where all scores of 5,000 values would be 200 MB.
  EXPECT_LT(FindSequenceKernels("base")->attention_memory(form, 5000), 750000);
}

TEST(Lists, WrongOffsetsAreRefused) {
  const auto refused = [](std::vector<int64_t> offsets, int64_t values) {
    EXPECT_THROW(Lists(offsets.data(), static_cast<int64_t>(offsets.size()) - 1, values),
                 std::invalid_argument);
  };
  refused({1, 2}, 2);
  refused({0, 2}, 3);
  refused({0, 3, 2}, 2);
  refused({0, -1, 2}, 2);
  const int64_t none = 0;
  EXPECT_EQ(Lists(&none, 0, 0).longest(), 0);
  EXPECT_TRUE(DivideLists(Lists(&none, 0, 0), Work::kSquare).empty());
}

TEST(Lists, TasksHaveEachListOnce) {
  std::vector<int64_t> offsets{0};
  for (int64_t i = 0; i < 1000; ++i) offsets.push_back(offsets.back() + (i == 600 ? 5000 : i % 7));
  const Lists lists(offsets.data(), 1000, offsets.back());
  const auto tasks = DivideLists(lists, Work::kSquare);
  std::vector<int> seen(1000);
  for (const ListTask& task : tasks) {
    for (int64_t i = task.first; i < task.last; ++i) ++seen[static_cast<size_t>(i)];
  }
  EXPECT_EQ(seen, std::vector<int>(1000, 1));
  EXPECT_LE(tasks.size(), 66u);
  EXPECT_EQ(lists.length(tasks.front().last - 1), 5000);  // the most work begins first
}

}  // namespace
}  // namespace msrec
