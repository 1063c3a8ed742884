// SPDX-License-Identifier: Apache-2.0
#include "rows/gradient_sum.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "testing.h"

namespace msrec {
namespace {

char kARow;  // where a row is, matters to nobody here: only whether there is one

std::unique_ptr<Batch> MakeBatch(const std::vector<int64_t>& ids) {
  auto batch = std::make_unique<Batch>();
  batch->Partition({ids.data(), ids.size(), true}, {});
  batch->grad_rows = ids.size();
  for (int s = 0; s < kNumShards; ++s) {
    batch->MakeUnique(s);
    for (uint32_t u = 0; u < batch->unique[s]; ++u) batch->row[batch->begin[s] + u] = &kARow;
  }
  return batch;
}

std::map<int64_t, std::vector<float>> Sums(GradientSum* gradients, int dim) {
  std::map<int64_t, std::vector<float>> sums;
  for (int s = 0; s < kNumShards; ++s) {
    GradientSum::Part& part = gradients->part(s);
    for (size_t i = 0; i < part.n; ++i) {
      const float* sum = part.sum.data() + i * dim;
      EXPECT_TRUE(sums.emplace(part.key[i], std::vector<float>(sum, sum + dim)).second);
      EXPECT_NE(part.row[i], nullptr);
    }
  }
  return sums;
}

// In the order of positions, one float addition after another.
std::map<int64_t, std::vector<float>> Model(const std::vector<int64_t>& ids,
                                            const std::vector<float>& grad, int dim) {
  std::map<int64_t, std::vector<float>> sums;
  for (size_t i = 0; i < ids.size(); ++i) {
    auto& sum = sums[ids[i]];
    sum.resize(dim);
    for (int j = 0; j < dim; ++j) sum[j] += grad[i * dim + j];
  }
  return sums;
}

class GradientSumTest : public ::testing::TestWithParam<std::tuple<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(ThreadsAndKernels, GradientSumTest,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values("base", "avx2", "avx512")));

TEST_P(GradientSumTest, SeveralLookupsAreTheirConcatenationBitForBit) {
  const Kernels* kernels = FindKernels(std::get<1>(GetParam()));
  if (kernels == nullptr) GTEST_SKIP() << "not on this CPU";
  Threads threads(std::get<0>(GetParam()));
  Rng rng(7);
  GradientSum gradients;  // reused over steps
  for (const int dim : {1, 3, 4, 8, 16, 17, 32, 64, 100}) {
    for (const uint64_t distinct : {3, 200, 20000}) {
      std::vector<int64_t> all_ids;
      std::vector<float> all_grads;
      gradients.Reset();
      ASSERT_TRUE(gradients.empty());
      const size_t lookups = 1 + rng.Below(5);
      for (size_t l = 0; l < lookups; ++l) {
        const size_t n = rng.Below(rng.OneIn(2) ? 3000 : 30);
        const auto ids = rng.Keys(n, distinct);
        const auto grad = rng.Floats(n * dim);
        gradients.Add(*MakeBatch(ids), grad.data(), dim, *kernels);
        all_ids.insert(all_ids.end(), ids.begin(), ids.end());
        all_grads.insert(all_grads.end(), grad.begin(), grad.end());
      }
      const auto sums = Sums(&gradients, dim);
      ASSERT_EQ(sums, Model(all_ids, all_grads, dim));
      GradientSum at_once;
      at_once.Add(*MakeBatch(all_ids), all_grads.data(), dim, *kernels);
      ASSERT_EQ(sums, Sums(&at_once, dim));
    }
  }
}

// What a lookup without the row has read is the unknown value: its gradient is not the row's.
TEST(GradientSum, AKeyIsTrainedByTheLookupsThatHadItsRow) {
  const std::vector<int64_t> ids = {5};
  const float grad_without[] = {1.0f}, grad_with[] = {4.0f};
  for (const bool first : {false, true}) {
    auto without = MakeBatch(ids);
    for (int s = 0; s < kNumShards; ++s) {
      if (without->unique[s] > 0) without->row[without->begin[s]] = nullptr;
    }
    auto with = MakeBatch(ids);
    GradientSum gradients;
    const Kernels& kernels = *FindKernels("base");
    if (first) gradients.Add(*without, grad_without, 1, kernels);
    gradients.Add(*with, grad_with, 1, kernels);
    if (!first) gradients.Add(*without, grad_without, 1, kernels);
    EXPECT_EQ(Sums(&gradients, 1), (std::map<int64_t, std::vector<float>>{{5, {4.0f}}}));
  }
}

TEST(GradientSum, RemembersTheOldestStructure) {
  auto batch = MakeBatch({1, 2, 3});
  const float grad[] = {1, 2, 3};
  GradientSum gradients;
  for (const uint64_t structure : {9, 4, 6}) {
    batch->structure = structure;
    gradients.Add(*batch, grad, 1, *FindKernels("base"));
  }
  EXPECT_EQ(gradients.structure(), 4u);
  gradients.Reset();
  batch->structure = 12;
  gradients.Add(*batch, grad, 1, *FindKernels("base"));
  EXPECT_EQ(gradients.structure(), 12u);
}

}  // namespace
}  // namespace msrec
