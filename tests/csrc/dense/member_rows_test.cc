// SPDX-License-Identifier: Apache-2.0
//
// Rows of an ensemble: values and gradients against the formula in double precision.
#include "dense/member_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "dense_testing.h"
#include "testing.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

struct Repeated {
  std::vector<float> output, of_x, of_factors;
};

struct Given {
  int64_t members, rows, width;
  std::vector<float> x, factors, gradient;

  Given(int64_t k, int64_t n, int64_t w, Rng* rng)
      : members(k),
        rows(n),
        width(w),
        x(rng->Floats(n * w)),
        factors(rng->Floats(k * w)),
        gradient(rng->Floats(k * n * w)) {}
};

Repeated RunMembers(const Given& given) {
  const MemberBatch batch{given.members, given.rows, given.width, given.x.data(),
                          given.factors.data()};
  Poisoned output(static_cast<int64_t>(given.gradient.size()));
  Poisoned of_x(static_cast<int64_t>(given.x.size()));
  Poisoned of_factors(static_cast<int64_t>(given.factors.size()));
  RepeatRows(batch, output.data(), &ThreadPool::Global());
  RepeatedRowsGradient(batch, given.gradient.data(), of_x.data(), of_factors.data(),
                       &ThreadPool::Global());
  EXPECT_TRUE(output.GuardsAreWhole() && of_x.GuardsAreWhole() && of_factors.GuardsAreWhole());
  return {output.Values(), of_x.Values(), of_factors.Values()};
}

TEST(MemberRowsTest, IsTheFormula) {
  Rng rng(1);
  for (const int64_t members : {1, 2, 7}) {
    for (const int64_t rows : {0, 1, 64, 65, 3000}) {
      const int64_t width = 5;
      const Given given(members, rows, width, &rng);
      const Repeated found = RunMembers(given);
      std::vector<double> of_x(given.x.size()), of_factors(given.factors.size());
      for (int64_t k = 0; k < members; ++k) {
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t j = 0; j < width; ++j) {
            const int64_t at = (k * rows + r) * width + j;
            const float x = given.x[r * width + j], factor = given.factors[k * width + j];
            ASSERT_EQ(found.output[at], x * factor);
            of_x[r * width + j] += static_cast<double>(given.gradient[at]) * factor;
            of_factors[k * width + j] += static_cast<double>(given.gradient[at]) * x;
          }
        }
      }
      for (size_t i = 0; i < of_x.size(); ++i) ASSERT_NEAR(found.of_x[i], of_x[i], 1e-5);
      for (size_t i = 0; i < of_factors.size(); ++i) {
        ASSERT_NEAR(found.of_factors[i], of_factors[i],
                    1e-5 * std::sqrt(static_cast<double>(rows + 1)));
      }
    }
  }
}

TEST(MemberRowsTest, NumberOfThreadsChangesNoBit) {
  Rng rng(2);
  const Given given(3, 3000, 7, &rng);
  const int before = ThreadPool::Global().num_threads();
  ThreadPool::Global().SetNumThreads(1);
  const Repeated one = RunMembers(given);
  ThreadPool::Global().SetNumThreads(5);
  const Repeated five = RunMembers(given);
  ThreadPool::Global().SetNumThreads(before);
  EXPECT_EQ(one.output, five.output);
  EXPECT_EQ(one.of_x, five.of_x);
  EXPECT_EQ(one.of_factors, five.of_factors);
}

}  // namespace
}  // namespace msrec
