// SPDX-License-Identifier: Apache-2.0
//
// Workers as threads: each with its own tables over all of them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "on_workers.h"
#include "table_testing.h"
#include "workers/sharded_table.h"
#include "workers/thread_group.h"

namespace msrec {

class Workers {
 public:
  // Of every config each worker makes its part, bound to the rule.
  Workers(int n, const std::vector<TableConfig>& configs, const Rule& rule, double limit = 60.0)
      : groups_(MakeThreadGroups(n, limit)), tables_(n) {
    for (int r = 0; r < n; ++r) {
      exchanges_.push_back(std::make_unique<TableExchange>(groups_[r].get()));
      for (TableConfig config : configs) {
        config.placement.workers = static_cast<uint32_t>(n);
        config.placement.rank = static_cast<uint32_t>(r);
        config.placement.owner %= static_cast<uint32_t>(n);
        auto table = std::make_shared<Table>(config);
        if (rule.kind != RuleKind::kNone) table->BindOptimizer(rule);
        tables_[r].push_back(std::make_unique<ShardedTable>(exchanges_[r].get(), table));
      }
    }
  }

  int size() const { return static_cast<int>(groups_.size()); }
  WorkerGroup& group(int r) { return *groups_[r]; }
  ShardedTable& table(int r, size_t t = 0) { return *tables_[r][t]; }
  std::vector<ShardedTable*> tables(int r) {
    std::vector<ShardedTable*> all;
    for (const auto& table : tables_[r]) all.push_back(table.get());
    return all;
  }
  void BeginStep(int64_t step, const std::vector<int64_t>& samples) {
    for (const auto& group : groups_) group->BeginStep(step, samples);
  }

  std::vector<std::string> Try(const std::function<void(int)>& fn) {
    return OnThreads(groups_.size(), fn);
  }
  void Run(const std::function<void(int)>& fn) {
    for (const std::string& error : Try(fn)) EXPECT_EQ(error, "");
  }

 private:
  std::vector<std::unique_ptr<WorkerGroup>> groups_;
  std::vector<std::unique_ptr<TableExchange>> exchanges_;
  std::vector<std::vector<std::unique_ptr<ShardedTable>>> tables_;
};

}  // namespace msrec
