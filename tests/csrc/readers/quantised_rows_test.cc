// SPDX-License-Identifier: Apache-2.0
#include "readers/quantised_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "table/table.h"
#include "util/float16.h"

namespace msrec {
namespace {

using Rows = std::vector<float>;

IdView View(const std::vector<int64_t>& ids) { return {ids.data(), ids.size(), true}; }

float HalfAt(const char* from) {
  uint16_t half;
  std::memcpy(&half, from, sizeof(half));
  return FromFloat16(half);
}

// The row that a quantised one is read as, number by number.
Rows Reference(const float* numbers, int32_t dim, int32_t bits) {
  std::vector<char> row(QuantisedLayout{dim, bits, false, false}.stride());
  QuantiseNumbers(numbers, dim, bits, row.data());
  const float scale = HalfAt(row.data()), offset = HalfAt(row.data() + 2);
  Rows out(dim);
  for (int32_t j = 0; j < dim; ++j) {
    const auto byte = static_cast<unsigned char>(row[4 + j * bits / 8]);
    const int code = bits == 8 ? byte : byte >> (j % 2 * 4) & 15;
    out[j] = scale * static_cast<float>(code) + offset;
  }
  return out;
}

Rows LookUp(const QuantisedRows& rows, const std::vector<int64_t>& ids, float unknown) {
  const Rows other(rows.layout().dim, unknown);
  Rows out(ids.size() * rows.layout().dim);
  rows.Lookup(View(ids), {}, other.data(), nullptr, out.data());
  return out;
}

struct Case {
  int32_t dim;
  int32_t bits;
};

class QuantisedRowsTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Dims, QuantisedRowsTest,
                         testing::Values(Case{1, 8}, Case{1, 4}, Case{3, 4}, Case{16, 8},
                                         Case{31, 4}, Case{64, 8}, Case{64, 4}, Case{133, 8},
                                         Case{133, 4}));

TEST_P(QuantisedRowsTest, NumbersAreOffByAtMostHalfTheScale) {
  const auto [dim, bits] = GetParam();
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const float spread : {1e-6f, 1e-2f, 1.0f, 1e3f}) {
    for (int round = 0; round < 50; ++round) {
      Rows numbers(dim);
      for (float& x : numbers) x = spread * (normal(random) + 2.0f);
      std::vector<char> row(QuantisedLayout{dim, bits, false, false}.stride());
      QuantiseNumbers(numbers.data(), dim, bits, row.data());
      const double half = HalfAt(row.data()) / 2.0;
      const Rows read = Reference(numbers.data(), dim, bits);
      for (int32_t j = 0; j < dim; ++j) {
        EXPECT_LE(std::fabs(read[j] - numbers[j]), half + std::fabs(numbers[j]) * 0x1p-23);
      }
    }
  }
}

// Keys and rows as a dict has them, through growth, updates and erases.
TEST_P(QuantisedRowsTest, IsADict) {
  const auto [dim, bits] = GetParam();
  QuantisedRows rows(dim, bits, 0, false);
  std::map<int64_t, Rows> model;
  std::mt19937_64 random(2);
  std::normal_distribution<float> normal;
  std::vector<int64_t> universe = {0, -1, -2, std::numeric_limits<int64_t>::min(),
                                   std::numeric_limits<int64_t>::max()};
  while (universe.size() < 3000) universe.push_back(static_cast<int64_t>(random()));
  for (int round = 0; round < 12; ++round) {
    std::vector<int64_t> keys;
    Rows values;
    const size_t most = round < 6 ? 250 * (round + 1) : 500;
    for (int i = 0; i < 400; ++i) {
      keys.push_back(universe[random() % most]);
      Rows row(dim);
      for (float& x : row) x = normal(random);
      values.insert(values.end(), row.begin(), row.end());
      model[keys.back()] = Reference(row.data(), dim, bits);
    }
    rows.Upsert(View(keys), values.data(), nullptr, nullptr);
    std::vector<int64_t> gone;
    size_t were = 0;
    for (int i = 0; i < 100; ++i) {
      gone.push_back(universe[random() % most]);
      were += model.erase(gone.back());
    }
    EXPECT_EQ(rows.Erase(View(gone)), were);
    EXPECT_EQ(rows.Size(), model.size());
    EXPECT_EQ(rows.Keys(nullptr).size(), model.size());
    const Rows read = LookUp(rows, universe, 0.25f);
    for (size_t i = 0; i < universe.size(); ++i) {
      const auto found = model.find(universe[i]);
      EXPECT_EQ(rows.Contains(universe[i], nullptr), found != model.end());
      const Rows expected = found != model.end() ? found->second : Rows(dim, 0.25f);
      ASSERT_EQ(std::memcmp(read.data() + i * dim, expected.data(), dim * sizeof(float)), 0);
    }
  }
  rows.Clear();
  EXPECT_EQ(rows.Size(), 0u);
  EXPECT_EQ(LookUp(rows, universe, 0.25f), Rows(universe.size() * dim, 0.25f));
}

TEST_P(QuantisedRowsTest, TakesRowsThatAreQuantisedAlready) {
  const auto [dim, bits] = GetParam();
  std::mt19937_64 random(dim);
  std::normal_distribution<float> normal;
  const std::vector<int64_t> keys = {5, -1, 0, 5, 1LL << 40};  // of a key given twice the last one
  Rows values(keys.size() * dim);
  for (float& value : values) value = normal(random);
  const QuantisedLayout layout{dim, bits, false, false};
  std::vector<uint8_t> codes(keys.size() * layout.stride());
  for (size_t i = 0; i < keys.size(); ++i) {
    QuantiseNumbers(&values[i * dim], dim, bits,
                    reinterpret_cast<char*>(&codes[i * layout.stride()]));
  }
  QuantisedRows one(dim, bits, 0, false), other(dim, bits, 0, false);
  one.Upsert(View(keys), values.data(), nullptr, nullptr);
  other.UpsertCodes(View(keys), codes.data(), nullptr, nullptr);
  EXPECT_EQ(LookUp(one, keys, 0), LookUp(other, keys, 0));
}

TEST_P(QuantisedRowsTest, EveryInstructionSetGivesTheSameBits) {
  const auto [dim, bits] = GetParam();
  for (const int64_t vocabulary : {0, 700}) {
    QuantisedRows rows(dim, bits, vocabulary, false);
    std::mt19937_64 random(3);
    std::normal_distribution<float> normal;
    std::vector<int64_t> keys(700);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
    Rows values(keys.size() * dim), weights(5000), unknown(dim, 0.5f);
    for (float& x : values) x = normal(random);
    for (float& x : weights) x = normal(random);
    values[5 * dim] = std::numeric_limits<float>::infinity();
    rows.Upsert(View(keys), values.data(), nullptr, nullptr);
    // Ragged bags, empty ones among them; some ids have no row.
    std::vector<int64_t> ids, offsets = {0, 0};
    while (ids.size() < weights.size()) ids.push_back(static_cast<int64_t>(random() % 750));
    while (offsets.back() < 4900) offsets.push_back(offsets.back() + random() % 40);
    for (const Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN}) {
      for (const bool weighted : {false, true}) {
        const BagView bags{View(offsets), weighted ? weights.data() : nullptr, combiner};
        Rows first;
        for (const char* name : {"base", "avx2", "avx512"}) {
          const Kernels* kernels = FindKernels(name);
          if (kernels == nullptr) continue;
          rows.Use(*kernels);
          Rows out(offsets.size() * dim, -1.0f);
          rows.Pool(View(ids), {}, bags, unknown.data(), nullptr, out.data());
          if (first.empty()) first = out;
          ASSERT_EQ(std::memcmp(first.data(), out.data(), out.size() * sizeof(float)), 0) << name;
        }
        EXPECT_EQ(first[0], 0.0f);  // the first bag is empty
      }
    }
  }
}

TEST(QuantisedNumbersTest, RowsThatAreEqualThroughoutStayNearlySo) {
  std::vector<float> all = {0.0f, -0.0f, 1.0f, 0.1f, -3.7f, 65504.0f, -65504.0f, 1e-8f, 1e-40f};
  std::mt19937_64 random(5);
  for (int exponent = -30; exponent < 16; ++exponent) {
    for (int i = 0; i < 40; ++i) {
      const double fraction = 1.0 + static_cast<double>(random() >> 40) * 0x1p-24;
      all.push_back(static_cast<float>(std::ldexp(i % 2 == 0 ? fraction : -fraction, exponent)));
    }
  }
  for (const float x : all) {
    if (std::fabs(x) > 65504.0f) continue;
    for (const int32_t dim : {1, 6, 7}) {
      const Rows numbers(dim, x);
      for (const int bits : {8, 4}) {
        const Rows read = Reference(numbers.data(), dim, bits);
        for (const float y : read) {
          ASSERT_EQ(y, read[0]);
          ASSERT_NEAR(y, x, std::max(std::fabs(x) * 1e-6, 0x1p-25 * 1.01)) << bits << " bits";
        }
      }
    }
  }
}

// As far as the codes reach, and from there on the greatest there is; never an infinity.
TEST(QuantisedNumbersTest, EqualRowsBeyondFloat16AreNearThemOrTheGreatestThereIs) {
  for (const int bits : {8, 4}) {
    const double reach = 65504.0 * (bits == 8 ? 256 : 16);
    for (double x = 65505.0; x < 1e38; x *= 1.7) {
      const auto number = static_cast<float>(x);
      for (const float y : Reference(Rows(5, number).data(), 5, bits)) {
        ASSERT_NEAR(y, std::min<double>(number, reach), x / 2048) << bits;
      }
      for (const float y : Reference(Rows(5, -number).data(), 5, bits)) ASSERT_EQ(y, -65504.0f);
    }
  }
}

TEST(QuantisedNumbersTest, ZerosOfEitherSignAreZero) {
  for (const int bits : {8, 4}) {
    for (int32_t dim = 1; dim < 10; ++dim) {
      for (int32_t at = 0; at < dim; ++at) {
        Rows numbers(dim, 0.0f);
        numbers[at] = -0.0f;
        const Rows read = Reference(numbers.data(), dim, bits);
        EXPECT_EQ(read, Rows(dim, 0.0f));
        for (const float x : read) EXPECT_FALSE(std::signbit(x));
      }
    }
  }
}

TEST(QuantisedNumbersTest, WhatIsNotFiniteMakesTheRowNan) {
  for (const float x : {std::numeric_limits<float>::infinity(),
                        -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    Rows numbers(9, 1.0f);
    numbers[8] = x;
    for (const float y : Reference(numbers.data(), 9, 4)) EXPECT_TRUE(std::isnan(y));
  }
}

TEST(QuantisedNumbersTest, WhatIsOutOfRangeBecomesTheNearestThereIs) {
  const Rows low(3, -1e30f), high(3, 1e30f);
  EXPECT_EQ(Reference(low.data(), 3, 8), Rows(3, -65504.0f));
  EXPECT_EQ(Reference(high.data(), 3, 8), Rows(3, 65504.0f * 256.0f));
}

TEST(QuantisedRowsMemoryTest, ARowOfSixteenTakesAtMostFortyBytes) {
  QuantisedRows rows(16, 8, 0, false);
  std::mt19937_64 random(4);
  const Rows values(5000 * 16, 1.0f);
  double worst = 0.0;
  for (int part = 0; part < 40; ++part) {
    std::vector<int64_t> keys;
    for (int i = 0; i < 5000; ++i) keys.push_back(static_cast<int64_t>(random()));
    rows.Upsert(View(keys), values.data(), nullptr, nullptr);
    const auto held = rows.MemoryHeld();
    const auto used = static_cast<double>(held.rows * rows.layout().stride() + held.index);
    worst = part < 20 ? 0.0 : std::max(worst, used / static_cast<double>(held.rows));
  }
  EXPECT_LE(worst, 40.0);
}

TEST(QuantisedRowsAgesTest, ARowPastItsAgeReadsAsIfThereWereNone) {
  QuantisedRows rows(2, 8, 0, true);
  const std::vector<int64_t> keys = {0, 1, 2};
  const std::vector<uint32_t> steps = {1, 5, 9}, times = {0, 7, 0};
  rows.Upsert(View(keys), Rows(6, 1.0f).data(), steps.data(), times.data());
  AgeLimit limit;
  limit.eviction.max_idle_steps = 4;
  limit.at.step = 10;
  EXPECT_FALSE(rows.Contains(0, &limit));
  EXPECT_FALSE(rows.Contains(1, &limit));
  EXPECT_TRUE(rows.Contains(2, &limit));
  EXPECT_EQ(rows.Keys(&limit), std::vector<int64_t>{2});
  const Rows unknown(2, 3.0f);
  Rows out(6);
  rows.Lookup(View(keys), {}, unknown.data(), &limit, out.data());
  EXPECT_EQ(out, (Rows{3, 3, 3, 3, 1, 1}));
  rows.StampTime(4);
  EXPECT_EQ(rows.AgesOf(1).last_time, 7u);
  EXPECT_EQ(rows.AgesOf(2).last_time, 4u);
  EXPECT_EQ(rows.EraseOld(limit), 2u);
  EXPECT_EQ(rows.Size(), 1u);
}

TEST(QuantisedRowsCallsTest, RefusesWhatItCannotHave) {
  EXPECT_THROW(QuantisedRows(0, 8, 0, false), std::invalid_argument);
  EXPECT_THROW(QuantisedRows(4, 2, 0, false), std::invalid_argument);
  EXPECT_THROW(QuantisedRows(4, 8, -1, false), std::invalid_argument);
  QuantisedRows rows(1, 8, 10, false);
  const std::vector<int64_t> keys = {3, 10};
  const Rows values = {1.0f, 1.0f};
  EXPECT_THROW(rows.Upsert(View(keys), values.data(), nullptr, nullptr), std::invalid_argument);
  EXPECT_EQ(LookUp(rows, {3}, 0.5f), Rows{0.0f});  // as it was
  EXPECT_THROW(rows.Erase(View(keys)), std::invalid_argument);
  const std::vector<int64_t> offsets = {0, 3};
  Rows out(2);
  EXPECT_THROW(rows.Pool(View(keys), {}, {View(offsets), nullptr, Combiner::kSum}, values.data(),
                         nullptr, out.data()),
               std::invalid_argument);
}

// A reader sees each row whole, before or after a change.
TEST(QuantisedRowsCallsTest, ReadersAndAWriterGetOn) {
  QuantisedRows rows(32, 8, 0, false);
  std::vector<int64_t> keys(2000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i * 977);
  const auto write = [&](float x) {
    rows.Upsert(View(keys), Rows(keys.size() * 32, x).data(), nullptr, nullptr);
  };
  write(0.0f);
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        const Rows read = LookUp(rows, keys, -1.0f);
        EXPECT_EQ(read, Rows(read.size(), read[0]));
      }
    });
  }
  for (int x = 0; x < 50; ++x) write(static_cast<float>(x));
  for (std::thread& reader : readers) reader.join();
}

// ---------------------------------------------------------------- as a table

TableConfig ConfigOf(int64_t vocabulary = 0) {
  TableConfig config;
  config.name = "quantised";
  config.dim = 5;
  config.vocabulary = vocabulary;
  config.initializer.kind = InitKind::kUniform;
  config.initializer.a = -1.0f;
  config.initializer.b = 1.0f;
  config.serving_unknown_value = {0.75f};
  return config;
}

TEST(QuantisedTableTest, ReadsWhatWasImported) {
  Table table(ConfigOf());
  table.quantised().Quantise(8);
  EXPECT_EQ(table.quantised().bits(), 8);
  std::vector<int64_t> keys = {7, -1};
  Rows values = {1, 2, 3, 4, 5, -1, 0, 1, 0, -1};
  RowArrays rows;
  rows.keys = keys.data();
  rows.values = values.data();
  table.Import(2, rows, 0);
  Rows out(15);
  const std::vector<int64_t> ids = {-1, 5, 7};
  table.LookupEval(View(ids), {}, out.data());
  for (int j = 0; j < 5; ++j) {
    EXPECT_NEAR(out[j], values[5 + j], 0.005);
    EXPECT_EQ(out[5 + j], 0.75f);
    EXPECT_NEAR(out[10 + j], values[j], 0.01);
  }
  bool found[] = {false, true, false};  // of the third nobody asks
  table.Contains({ids.data(), 2, true}, found);
  EXPECT_TRUE(found[0] && !found[1] && !found[2]);
  IdFilter padded;
  padded.has_padding = true;
  padded.padding_key = 5;
  const std::vector<int64_t> offsets = {0};
  table.PoolEval(View(ids), padded, {View(offsets), nullptr, Combiner::kMean}, out.data());
  for (int j = 0; j < 5; ++j) EXPECT_NEAR(out[j], (values[j] + values[5 + j]) / 2, 0.01);
  EXPECT_EQ(table.Size(), 2u);
  EXPECT_EQ(table.Export(true).n, 2u);
  EXPECT_EQ(table.Erase(View(ids)), 2u);
  EXPECT_EQ(table.Size(), 0u);
  table.Clear();
}

TEST(QuantisedTableTest, TakesRowsThatAreQuantisedAlready) {
  const std::vector<int64_t> keys = {7, -1};
  const Rows values = {1, 2, 3, 4, 5, -1, 0, 1, 0, -1};
  for (const int bits : {8, 4}) {
    const QuantisedLayout layout{5, bits, false, false};
    const size_t width = 4 + layout.code_bytes();
    std::vector<uint8_t> codes(2 * (width + 1));
    for (size_t i = 0; i < 2; ++i) {
      QuantiseNumbers(&values[i * 5], 5, bits, reinterpret_cast<char*>(&codes[i * width]));
    }
    std::vector<uint32_t> zeros(2);
    RowArrays ages;
    ages.last_steps = ages.last_times = zeros.data();
    Table table(ConfigOf()), other(ConfigOf());
    for (const size_t each : {size_t{0}, width}) {
      EXPECT_THROW(table.quantised().ImportCodes(View(keys), codes.data(), each, ages),
                   std::invalid_argument)
          << "rows of float32";
    }
    for (Table* each : {&table, &other}) each->quantised().Quantise(bits);
    for (const size_t bad : {size_t{0}, width - 1, width + 1}) {
      EXPECT_THROW(table.quantised().ImportCodes(View(keys), codes.data(), bad, ages),
                   std::invalid_argument)
          << bad;
    }
    EXPECT_EQ(table.Size(), 0u);
    table.quantised().ImportCodes(View(keys), codes.data(), width, ages);
    other.Put(View(keys), values.data(), 2);
    Rows out(10), expected(10);
    table.LookupEval(View(keys), {}, out.data());
    other.LookupEval(View(keys), {}, expected.data());
    EXPECT_EQ(out, expected);
    EXPECT_EQ(table.Size(), 2u);
  }
}

TEST(QuantisedTableTest, ColumnsOfAGroupAreAStrideApart) {
  Table table(ConfigOf());
  table.quantised().Quantise(4);
  const std::vector<int64_t> ids = {1, 100, 2, 100};
  const std::vector<int64_t> keys = {1, 2};
  table.Put(View(keys), Rows{1, 1, 1, 1, 1, 2, 2, 2, 2, 2}.data(), 2);
  Rows out(20, -5.0f);
  table.LookupEval({ids.data(), 2, true, 2}, {}, out.data());
  EXPECT_EQ(out, (Rows{1, 1, 1, 1, 1, -5, -5, -5, -5, -5, 2, 2, 2, 2, 2, -5, -5, -5, -5, -5}));
}

TEST(QuantisedTableTest, AStaticTableHasItsFirstValues) {
  Table plain(ConfigOf(100)), table(ConfigOf(100));
  table.quantised().Quantise(8);
  std::vector<int64_t> ids(100);
  for (int i = 0; i < 100; ++i) ids[i] = i;
  Rows expected(500), out(500);
  plain.LookupEval(View(ids), {}, expected.data());
  for (int round = 0; round < 2; ++round) {
    table.LookupEval(View(ids), {}, out.data());
    for (int i = 0; i < 500; ++i) EXPECT_NEAR(out[i], expected[i], 0.005);
    const std::vector<int64_t> third = {3};
    table.Put(View(third), Rows(5, 9.0f).data(), 1);
    table.Clear();
  }
  const std::vector<int64_t> outside = {100};
  EXPECT_THROW(table.LookupEval(View(outside), {}, out.data()), std::invalid_argument);
}

TEST(QuantisedTableTest, IsNotTrained) {
  Table table(ConfigOf());
  table.quantised().Quantise(8);
  EXPECT_THROW(table.BindOptimizer({}), std::invalid_argument);
  EXPECT_THROW(table.changes().Mark(), std::invalid_argument);
  EXPECT_THROW(table.quantised().Quantise(4), std::invalid_argument);
  table.quantised().Quantise(8);
  Rows out(5);
  const std::vector<int64_t> ids = {1};
  EXPECT_THROW(table.LookupTrain(View(ids), {}, out.data()), NoOptimizer);
  EXPECT_THROW(table.Get(View(ids), {}, true, out.data()), std::invalid_argument);
  Table full(ConfigOf());
  full.Put(View(ids), Rows(5).data(), 1);
  EXPECT_THROW(full.quantised().Quantise(8), std::invalid_argument);
}

TEST(QuantisedTableTest, RowsLeaveByAge) {
  TableConfig config = ConfigOf();
  config.eviction.max_idle_steps = 10;
  Table table(config);
  table.quantised().Quantise(8);
  std::vector<int64_t> keys = {1, 2};
  std::vector<uint32_t> steps = {5, 15};
  Rows values(10, 1.0f);
  RowArrays rows;
  rows.keys = keys.data();
  rows.values = values.data();
  rows.last_steps = steps.data();
  table.clock().Set(16, 0);
  table.Import(2, rows, 0);
  Rows out(10);
  table.LookupEval(View(keys), {}, out.data());
  EXPECT_EQ(out[0], 0.75f);
  EXPECT_NEAR(out[5], 1.0f, 0.01);
  EXPECT_EQ(table.Size(), 1u);
}

}  // namespace
}  // namespace msrec
