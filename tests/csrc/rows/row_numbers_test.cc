// SPDX-License-Identifier: Apache-2.0
//
// Rows handed over as bfloat16, and gradients that come so: a table that is used that way has the
// bits of one that hands the same numbers over as float32.
#include "rows/row_numbers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "readers/quantised_rows.h"
#include "table/table.h"
#include "table_testing.h"
#include "testing.h"
#include "util/bfloat16.h"

namespace msrec {
namespace {

TableConfig Config(int dim, NumberType value = NumberType::kBfloat16) {
  TableConfig config = NormalConfig("t", dim);
  config.precision.value = value;
  config.unknown_value = {0.3f};
  config.serving_unknown_value = {-0.7f};
  return config;
}

std::vector<float> Widened(const std::vector<uint16_t>& halves) {
  std::vector<float> floats(halves.size());
  std::transform(halves.begin(), halves.end(), floats.begin(),
                 [](uint16_t half) { return FromBfloat16(half); });
  return floats;
}

// Output of such a lookup, in rows `stride` apart; numbers between them stay 7.
struct Looked {
  std::vector<uint16_t> halves;
  std::vector<float> floats;

  Looked(size_t rows, size_t stride, int dim)
      : halves(rows * stride * dim, ToBfloat16(7.0f)), floats(rows * stride * dim, 7.0f) {}
  RowsOut Halves() { return RowsOut::Bfloat16(halves.data()); }
};

std::vector<uint16_t> DrawGradient(Rng* rng, size_t n) {
  std::vector<uint16_t> numbers(n);
  for (uint16_t& x : numbers) x = ToBfloat16(rng->Float(-1.0f, 1.0f));
  return numbers;
}

// A life of random steps: the same ids and gradients, in bfloat16 and in float32. Gradients come in
// any order, so that some wait for others.
void ExpectAlike(int dim, int threads, uint64_t seed) {
  const Threads pool(threads);
  Rng rng(seed);
  TableConfig config = Config(dim);
  config.precision.state = NumberType::kBfloat16;
  if (rng.OneIn(2)) config.admission.threshold = 2;
  Table narrow(config), wide(config);
  const Rule rule = RuleOf(RuleKind::kAdam);
  for (Table* table : {&narrow, &wide}) table->BindOptimizer(rule);
  for (int step = 1; step <= 6; ++step) {
    struct One {
      int64_t narrow, wide;
      std::vector<uint16_t> grad;
      size_t rows;
    };
    std::vector<One> lookups;
    for (uint64_t l = 0, most = 1 + rng.Below(4); l < most; ++l) {
      const size_t n = rng.OneIn(3) ? 3000 : rng.Below(40);
      const size_t stride = 1 + rng.Below(3);
      const auto keys = rng.Keys(n * stride, 200);
      const IdView ids{keys.data(), n, true, stride};
      IdFilter filter;
      filter.has_padding = rng.OneIn(2);
      filter.padding_key = -1;
      Looked out(n, stride, dim);
      const int64_t one = narrow.LookupTrain(ids, filter, out.Halves());
      const int64_t other = wide.LookupTrain(ids, filter, out.floats.data());
      ASSERT_TRUE(SameBits(Widened(out.halves), out.floats));
      lookups.push_back({one, other, DrawGradient(&rng, n * stride * dim), n});
    }
    while (!lookups.empty()) {
      const auto at = lookups.begin() + static_cast<int64_t>(rng.Below(lookups.size()));
      narrow.Accumulate(at->narrow, Gradient::Bfloat16(at->grad.data()), at->rows);
      const auto floats = Widened(at->grad);
      wide.Accumulate(at->wide, floats.data(), at->rows);
      // A gradient that has to wait was copied.
      std::fill(at->grad.begin(), at->grad.end(), uint16_t{0x7fc0});
      lookups.erase(at);
    }
    const double norm = narrow.GradientSquaredNorm();
    ASSERT_EQ(norm, wide.GradientSquaredNorm());
    const StepInput input{0.1f, 0.0f, 1.0f, step, 0};
    narrow.Step(input);
    wide.Step(input);
  }
  std::vector<int64_t> twice;
  ASSERT_EQ(RowsByKey(narrow.Export(true), &twice), RowsByKey(wide.Export(true), &twice));
  // Evaluation reads what training would; keys that no row has read the other default.
  const auto keys = rng.Keys(300, 400);
  Looked out(keys.size(), 1, dim);
  narrow.LookupEval(View(keys), {}, out.Halves());
  narrow.LookupEval(View(keys), {}, out.floats.data());
  ASSERT_TRUE(SameBits(Widened(out.halves), out.floats));
}

TEST(RowNumbersTest, RowsAndGradientsOfTwoBytesAreThoseOfFour) {
  uint64_t seed = 1;
  for (const int dim : {1, 3, 16, 17, 64}) {
    for (const int threads : {1, 3}) ExpectAlike(dim, threads, seed++);
  }
}

TEST(RowNumbersTest, AreForTablesWhoseValuesAreThat) {
  const int64_t key = 1;
  uint16_t out[4] = {9, 9, 9, 9};
  for (const NumberType type : {NumberType::kFloat32, NumberType::kFloat16}) {
    Table table(Config(4, type));
    table.BindOptimizer(RuleOf(RuleKind::kSgd));
    for (const bool train : {false, true}) {
      try {
        const RowsOut rows = RowsOut::Bfloat16(out);
        if (train) {
          table.LookupTrain({&key, 1, true}, {}, rows);
        } else {
          table.LookupEval({&key, 1, true}, {}, rows);
        }
        ADD_FAILURE() << "no error";
      } catch (const std::invalid_argument& error) {
        EXPECT_EQ(error.what(),
                  "table 't': rows are handed over as bfloat16 where values are bfloat16, this "
                  "table's are " +
                      std::string(NameOf(type)));
      }
    }
    EXPECT_EQ(table.Size(), 0u);
    EXPECT_EQ(out[0], 9);
  }
}

TEST(RowNumbersTest, EachQuantisedRowOfAStaticTableBeginsWithItsFirstValue) {
  TableConfig config = Config(5, NumberType::kFloat32);
  config.vocabulary = 9000;  // more than two parts
  Table wide(config);
  wide.BindOptimizer(RuleOf(RuleKind::kSgd));
  Table narrow(config);
  narrow.quantised().Quantise(8);
  const auto keys = Range(0, config.vocabulary);
  std::vector<float> rounded(keys.size() * 5), exact(rounded.size());
  narrow.LookupEval(View(keys), {}, rounded.data());
  wide.LookupEval(View(keys), {}, exact.data());
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(rounded[i], exact[i], 0.005) << i / 5;
}

TEST(RowNumbersTest, QuantisedRowsAreRounded) {
  for (const int bits : {8, 4}) {
    Table table(Config(5));
    table.quantised().Quantise(bits);
    Rng rng(bits);
    const auto keys = Range(0, 9000);
    const auto values = rng.Floats(keys.size() * 5);
    table.Put(View(keys), values.data(), keys.size());
    for (const size_t stride : {1, 2}) {
      const auto looked = Range(-10, 9010);  // unknown ones on both ends, more than one part
      const IdView ids{looked.data(), looked.size() / stride, true, stride};
      Looked out(ids.size, stride, 5);
      table.LookupEval(ids, {}, out.Halves());
      table.LookupEval(ids, {}, out.floats.data());
      for (size_t i = 0; i < out.floats.size(); ++i) {
        ASSERT_EQ(out.halves[i], ToBfloat16(out.floats[i])) << bits << ' ' << i;
      }
    }
  }
}

}  // namespace
}  // namespace msrec
