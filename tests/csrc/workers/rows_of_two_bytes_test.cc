// SPDX-License-Identifier: Apache-2.0
//
// Rows of tables with two bytes a number, on their way between workers: what one table reads, in
// half of the bytes.
#include <gtest/gtest.h>

#include "util/bfloat16.h"
#include "worker_testing.h"

namespace msrec {
namespace {

constexpr NumberType kTypes[] = {NumberType::kFloat32, NumberType::kBfloat16, NumberType::kFloat16};

TableConfig ConfigOf(NumberType type, int dim, PlacementKind kind) {
  TableConfig config = NormalConfig(std::string(NameOf(type)) + std::to_string(dim), dim);
  config.seed = 5;
  config.precision.value = type;
  config.placement.kind = kind;
  config.placement.owner = 1;
  config.unknown_value = {0.3f};
  config.admission.threshold = 3;
  return config;
}

// Read over workers by lookups and bags, one operation each or all in one; compare with a table
// that gets the ids of all.
void ExpectSameReads(int n, PlacementKind kind, bool together) {
  std::vector<TableConfig> configs;
  for (const int dim : {1, 3, 16, 20}) {
    for (const NumberType type : kTypes) configs.push_back(ConfigOf(type, dim, kind));
  }
  Rng rng(n);
  std::vector<std::vector<int64_t>> ids(n);
  std::vector<int64_t> all, offsets, every_offset;
  constexpr size_t kIds = 60, kBag = 4;
  for (size_t at = 0; at < kIds; at += kBag) offsets.push_back(static_cast<int64_t>(at));
  for (auto& each : ids) {
    for (size_t i = 0; i < kIds; ++i) each.push_back(static_cast<int64_t>(rng.Below(50)));
    for (const int64_t offset : offsets) {
      every_offset.push_back(offset + static_cast<int64_t>(all.size()));
    }
    all.insert(all.end(), each.begin(), each.end());
  }
  const Rule rule = RuleOf(RuleKind::kSgd);
  Workers workers(n, configs, rule);
  for (const bool bags : {false, true}) {
    workers.BeginStep(bags ? 2 : 1, std::vector<int64_t>(n, 1));
    std::vector<std::vector<std::vector<float>>> read(n);
    workers.Run([&](int r) {
      const BagView view{View(offsets), nullptr, Combiner::kSum};
      std::vector<LookupRequest> requests;
      for (size_t t = 0; t < configs.size(); ++t) {
        read[r].emplace_back((bags ? offsets.size() : kIds) * configs[t].dim);
        LookupRequest request;
        request.table = &workers.table(r, t);
        request.ids = View(ids[r]);
        request.bags = bags ? &view : nullptr;
        requests.push_back(request);
      }
      for (size_t t = 0; t < configs.size(); ++t) requests[t].out = read[r][t].data();
      if (together) return LookUpOverWorkers(requests.data(), requests.size(), true);
      for (const LookupRequest& request : requests) {
        std::vector<LookupRequest> one{request};
        LookUpOverWorkers(one.data(), one.size(), true);
      }
    });
    for (size_t t = 0; t < configs.size(); ++t) {
      Table one(configs[t]);
      one.BindOptimizer(rule);
      std::vector<float> expected(all.size() * configs[t].dim);
      one.LookupTrain(View(all), IdFilter{}, expected.data());
      if (bags) {  // by now every worker has counted the ids twice
        one.DiscardGradients();
        one.PoolTrain(View(all), IdFilter{}, {View(every_offset), nullptr, Combiner::kSum},
                      expected.data());
      }
      for (int r = 0; r < n; ++r) {
        const std::vector<float>& got = read[r][t];
        ASSERT_TRUE(SameBits(got.data(), expected.data() + r * got.size(), got.size()))
            << configs[t].name << (bags ? " bags of worker " : " worker ") << r;
      }
    }
  }
}

TEST(RowsOfTwoBytesTest, ReadAsFromOneTable) {
  for (const int n : {1, 2, 3}) {
    for (const PlacementKind kind :
         {PlacementKind::kSharded, PlacementKind::kReplicated, PlacementKind::kOwner}) {
      if (kind == PlacementKind::kOwner && n == 1) continue;
      for (const bool together : {false, true}) ExpectSameReads(n, kind, together);
    }
  }
}

// Rows of bfloat16 that are handed over so, and a gradient that comes so, over workers: as in
// float32.
TEST(RowsOfTwoBytesTest, AreHandedOverAsTheyAre) {
  constexpr int kDim = 20;
  constexpr size_t kIds = 3000;
  for (const int n : {1, 2, 3}) {
    for (const PlacementKind kind : {PlacementKind::kSharded, PlacementKind::kReplicated}) {
      const std::vector<TableConfig> configs = {ConfigOf(NumberType::kBfloat16, kDim, kind)};
      Rng rng(n);
      std::vector<std::vector<int64_t>> ids(n);
      std::vector<std::vector<uint16_t>> grads(n);
      for (int r = 0; r < n; ++r) {
        ids[r] = rng.Keys(kIds, 700);
        for (const float x : rng.Floats(kIds * kDim)) grads[r].push_back(ToBfloat16(x));
      }
      Workers narrow(n, configs, RuleOf(RuleKind::kAdagrad));
      Workers wide(n, configs, RuleOf(RuleKind::kAdagrad));
      IdFilter padded;
      padded.has_padding = true;
      padded.padding_key = -1;
      for (int step = 1; step <= 4; ++step) {
        std::vector<std::vector<uint16_t>> halves(n, std::vector<uint16_t>(kIds * kDim));
        std::vector<std::vector<float>> floats(n, std::vector<float>(kIds * kDim));
        std::vector<int64_t> samples(n, 1);
        if (n > 1 && step == 4) samples[0] = 0;  // an idle worker reads zeros
        for (Workers* workers : {&narrow, &wide}) workers->BeginStep(step, samples);
        narrow.Run([&](int r) {
          ShardedTable& table = narrow.table(r);
          const RowsOut out = RowsOut::Bfloat16(halves[r].data());
          const int64_t ticket = table.LookupTrain(View(ids[r]), padded, out);
          table.Accumulate(ticket, Gradient::Bfloat16(grads[r].data()), kIds);
          ExchangeGradients(narrow.tables(r), {false});
          table.Step({0.1f, 0, 1, step, 0});
        });
        wide.Run([&](int r) {
          ShardedTable& table = wide.table(r);
          const int64_t ticket = table.LookupTrain(View(ids[r]), padded, floats[r].data());
          std::vector<float> grad;
          for (const uint16_t x : grads[r]) grad.push_back(FromBfloat16(x));
          table.Accumulate(ticket, grad.data(), kIds);
          ExchangeGradients(wide.tables(r), {false});
          table.Step({0.1f, 0, 1, step, 0});
        });
        for (int r = 0; r < n; ++r) {
          for (size_t i = 0; i < floats[r].size(); ++i) {
            const float read = FromBfloat16(halves[r][i]);
            ASSERT_TRUE(SameBits(&read, &floats[r][i], 1)) << n << ' ' << step << ' ' << i;
          }
        }
      }
      for (int r = 0; r < n; ++r) {
        std::vector<int64_t> twice;
        ASSERT_EQ(RowsByKey(narrow.table(r).table().Export(true), &twice),
                  RowsByKey(wide.table(r).table().Export(true), &twice));
      }
      std::vector<std::vector<uint16_t>> halves(n, std::vector<uint16_t>(kIds * kDim));
      std::vector<std::vector<float>> floats(n, std::vector<float>(kIds * kDim));
      narrow.Run([&](int r) {
        narrow.table(r).LookupEval(View(ids[r]), {}, RowsOut::Bfloat16(halves[r].data()));
        narrow.table(r).LookupEval(View(ids[r]), {}, floats[r].data());
      });
      for (int r = 0; r < n; ++r) {
        for (size_t i = 0; i < floats[r].size(); ++i) {
          ASSERT_EQ(halves[r][i], ToBfloat16(floats[r][i]));
        }
      }
    }
  }
}

TEST(RowsOfTwoBytesTest, OfOtherTypesAreNotHandedOverAsBfloat16) {
  Workers workers(2, {ConfigOf(NumberType::kFloat32, 4, PlacementKind::kSharded)},
                  RuleOf(RuleKind::kSgd));
  workers.BeginStep(1, {1, 1});
  const std::vector<int64_t> ids = {1, 2};
  for (const std::string& error : workers.Try([&](int r) {
         std::vector<uint16_t> rows(8);
         workers.table(r).LookupTrain(View(ids), {}, RowsOut::Bfloat16(rows.data()));
       })) {
    EXPECT_NE(error.find("rows are handed over as bfloat16 where values are bfloat16"),
              std::string::npos)
        << error;
  }
}

// Return the bytes that worker 0 sends for an evaluation lookup of `ids` by both workers.
uint64_t BytesOfLookup(NumberType type, int dim, const std::vector<int64_t>& ids) {
  Workers workers(2, {ConfigOf(type, dim, PlacementKind::kSharded)}, RuleOf(RuleKind::kSgd));
  workers.BeginStep(1, {1, 1});
  const Communicator& channel = workers.group(0).channel(Channel::kStep);
  const uint64_t before = channel.statistics().bytes_sent;
  workers.Run([&](int r) {
    std::vector<float> out(ids.size() * dim);
    workers.table(r).LookupEval(View(ids), IdFilter{}, out.data());
  });
  return channel.statistics().bytes_sent - before;
}

TEST(RowsOfTwoBytesTest, TravelInHalfOfTheBytes) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < 1000; ++id) ids.push_back(id);
  const auto without_rows = [&](NumberType type) {
    return 2 * BytesOfLookup(type, 16, ids) - BytesOfLookup(type, 32, ids);
  };
  const uint64_t keys = without_rows(NumberType::kFloat32);
  const uint64_t rows = BytesOfLookup(NumberType::kFloat32, 32, ids) - keys;
  EXPECT_GT(rows, 400u * 32 * sizeof(float));
  for (const NumberType type : {NumberType::kBfloat16, NumberType::kFloat16}) {
    EXPECT_EQ(without_rows(type), keys);
    EXPECT_EQ(BytesOfLookup(type, 32, ids) - keys, rows / 2);
  }
}

}  // namespace
}  // namespace msrec
