// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "digest.h"
#include "rules.h"
#include "table/table.h"
#include "testing.h"
#include "util/hash.h"

namespace msrec {
namespace {

uint64_t Combine(uint64_t digest, const void* data, size_t bytes) {
  return Mix64(digest * 31 + HashBytes(data, bytes));
}

uint64_t LifeOf(RuleKind kind, InitKind init, int dim, int case_number) {
  TableConfig config;
  config.name = "digest";
  config.dim = dim;
  config.seed = case_number;
  config.initializer.kind = init;
  config.initializer.a = init == InitKind::kUniform ? -0.1f : 0.05f;
  config.initializer.b = 0.1f;
  Table table(config);
  Rule rule;
  rule.kind = kind;
  rule.momentum = 0.9f;
  rule.l1 = 0.001f;
  rule.l2 = 0.01f;
  rule.initial_accumulator = 0.1f;
  rule.nesterov = case_number % 2 != 0;
  rule.centered = case_number % 3 == 0;
  table.BindOptimizer(rule);
  Rng rng(case_number);
  uint64_t digest = 0;
  for (int step = 1; step <= 3; ++step) {
    std::array<int64_t, 2> tickets;
    const size_t n = 3000;
    std::vector<float> out(n * dim);
    for (int64_t& ticket : tickets) {
      const auto ids = rng.Keys(n, 700);
      if (rng.OneIn(2)) {
        ticket = table.LookupTrain({ids.data(), n, true}, {}, out.data());
      } else {
        std::vector<int64_t> offsets(n);  // bags of one: as many gradients as ids
        for (size_t i = 0; i < n; ++i) offsets[i] = static_cast<int64_t>(i);
        const auto weights = rng.Floats(n, 0.1f, 2.0f);
        const BagView bags{{offsets.data(), n, true}, weights.data(), Combiner::kSqrtN};
        ticket = table.PoolTrain({ids.data(), n, true}, {}, bags, out.data());
      }
      digest = Combine(digest, out.data(), out.size() * sizeof(float));
    }
    for (const int64_t ticket : tickets) {
      const auto grad = rng.Floats(n * dim);
      table.Accumulate(ticket, grad.data(), n);
    }
    const double norm = table.GradientSquaredNorm();
    digest = Combine(digest, &norm, sizeof(norm));
    table.Step({0.01f, 0.02f, 0.5f, step});
  }
  const ExportedRows rows = table.Export(true);
  digest = Combine(digest, rows.keys.get(), rows.n * sizeof(int64_t));
  digest = Combine(digest, rows.values.get(), rows.n * dim * sizeof(float));
  return Combine(digest, rows.states.get(), rows.n * rows.state_width * sizeof(float));
}

}  // namespace

std::string TableDigest() {
  uint64_t digest = 0;
  int case_number = 0;
  for (const RuleKind kind : kEveryRuleKind) {
    for (const int dim : {1, 8, 16, 35}) {
      const auto init = static_cast<InitKind>(case_number % 4);
      digest = digest * 31 + LifeOf(kind, init, dim, case_number++);
    }
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(digest));
  return text.data();
}

}  // namespace msrec
