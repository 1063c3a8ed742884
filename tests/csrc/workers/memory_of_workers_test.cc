// SPDX-License-Identifier: Apache-2.0
//
// Memory that runs out on one worker, at each of its allocations in turn: all workers throw, or
// none does; nobody waits for the one that failed; rows are as before; and the next operation
// works.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "alloc_faults.h"
#include "table_state.h"
#include "worker_testing.h"
#include "workers/dense_average.h"

namespace msrec {
namespace {

constexpr int kWorkers = 3;
constexpr int kDim = 4;
constexpr double kLimit = 20.0;  // seconds that a worker would wait for one that has given up
constexpr size_t kMostAllocations = 600;  // then ids would leave the vocabulary

// Returns the distance from the nth allocation to the next one that is to fail: 1, but under
// sanitizers, which are slow, it grows with n. Threads meet in the same ways whichever fails.
size_t Further(size_t nth) { return kFewer > 1 ? 1 + nth / 8 : 1; }

std::vector<TableConfig> Configs() {
  TableConfig plain = NormalConfig("plain", kDim);
  TableConfig admitted = NormalConfig("admitted", kDim);
  admitted.admission.threshold = 2;
  TableConfig whole = NormalConfig("whole", kDim);
  whole.placement.kind = PlacementKind::kReplicated;
  TableConfig fixed = NormalConfig("static", kDim);
  fixed.vocabulary = 5000;
  return {plain, admitted, whole, fixed};
}

class MemoryOfWorkers : public ::testing::TestWithParam<int> {
 protected:
  MemoryOfWorkers() : workers_(kWorkers, Configs(), RuleOf(RuleKind::kAdagrad), kLimit) {
    for (int r = 0; r < kWorkers; ++r) {
      dense_.push_back(std::make_unique<TableExchange>(&workers_.group(r)));
    }
  }

  using Operation = std::function<void(int worker)>;

  std::vector<TableState> States() {
    std::vector<TableState> states;
    for (int r = 0; r < kWorkers; ++r) {
      for (ShardedTable* table : workers_.tables(r)) {
        std::string wrong;
        states.push_back(TableState::Of(&table->table(), &wrong));
        EXPECT_EQ(wrong, "");
      }
    }
    return states;
  }

  // Lets allocation 1, 2, ... of one worker fail in `operation`, after `before`, which makes it one
  // that has something to do each time, until it needs no more of them.
  void FailEach(const Operation& before, const Operation& operation) {
    int failures = 0;
    size_t nth = 1;
    for (bool happened = true; happened && nth < kMostAllocations; nth += Further(nth)) {
      SCOPED_TRACE("allocation " + std::to_string(nth));
      round_ = static_cast<int64_t>(nth);
      workers_.Run(before);
      const std::vector<TableState> states = States();
      const auto start = std::chrono::steady_clock::now();
      const auto errors = workers_.Try([&](int r) {
        if (r != GetParam()) return operation(r);
        struct Note {
          bool* happened;
          ~Note() { *happened = AllocationFaults::happened(); }
        } note{&happened};
        const AllocationFaults faults = AllocationFaults::Nth(nth);
        operation(r);
      });
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_LT(seconds.count(), kLimit / 2);
      const bool failed = !errors[GetParam()].empty();
      failures += failed;
      for (int r = 0; r < kWorkers; ++r) {
        EXPECT_EQ(!errors[r].empty(), failed) << "worker " << r << ": " << errors[r];
        if (!failed || r == GetParam()) continue;
        EXPECT_EQ(errors[r].rfind("worker " + std::to_string(GetParam()) + ": ", 0), 0u)
            << errors[r];
        EXPECT_NE(errors[r].find("out of memory"), std::string::npos) << errors[r];
      }
      if (failed) {
        const std::vector<TableState> after = States();
        for (size_t i = 0; i < after.size(); ++i) {
          EXPECT_EQ(after[i].Difference(states[i]), "") << "table " << i;
        }
      }
      workers_.Run([&](int r) {
        for (ShardedTable* table : workers_.tables(r)) table->DiscardGradients();
      });
      if (HasFailure()) return;
    }
    EXPECT_LT(nth, kMostAllocations);
    EXPECT_GT(failures, 2);
  }

  // Ids of this round: others on each worker, some of them new.
  std::vector<int64_t> Ids(int worker) const {
    return Range(8 * round_ + worker, 8 * round_ + worker + 40);
  }

  // Looks ids up in all tables at once, in the first one twice.
  std::vector<LookupRequest> Lookups(int r, const std::vector<int64_t>& ids,
                                     std::vector<float>* out) {
    std::vector<ShardedTable*> tables = workers_.tables(r);
    tables.push_back(tables[0]);
    out->resize(tables.size() * ids.size() * kDim);
    std::vector<LookupRequest> requests;
    for (ShardedTable* table : tables) {
      float* const rows = out->data() + requests.size() * ids.size() * kDim;
      requests.push_back({table, View(ids), {}, nullptr, rows});
    }
    return requests;
  }

  void LookUpAndAccumulate(int r) {
    const auto ids = Ids(r);
    std::vector<float> out;
    auto requests = Lookups(r, ids, &out);
    LookUpOverWorkers(requests.data(), requests.size(), true);
    for (const LookupRequest& each : requests) {
      each.table->Accumulate(each.ticket, out.data(), ids.size());
    }
  }

  Workers workers_;
  std::vector<std::unique_ptr<TableExchange>> dense_;
  int64_t round_ = 0;
};

void Nothing(int) {}

// The faults of FailEach are for the operation alone, so what tests need is made before.
struct Inputs {
  std::vector<int64_t> ids, handles;
  std::vector<float> rows;
  std::vector<LookupRequest> requests;
};

TEST_P(MemoryOfWorkers, LookupsOfAllTables) {
  for (const bool train : {true, false}) {
    std::vector<Inputs> inputs(kWorkers);
    FailEach(
        [&](int r) {
          inputs[r].ids = Ids(r);
          inputs[r].requests = Lookups(r, inputs[r].ids, &inputs[r].rows);
        },
        [&](int r) {
          LookUpOverWorkers(inputs[r].requests.data(), inputs[r].requests.size(), train);
        });
  }
}

TEST_P(MemoryOfWorkers, PooledLookups) {
  std::vector<Inputs> inputs(kWorkers);
  const std::vector<int64_t> offsets{0, 3, 3, 20};
  BagView bags;
  bags.offsets = View(offsets);
  FailEach(
      [&](int r) {
        inputs[r].ids = Ids(r);
        inputs[r].rows.resize(offsets.size() * kDim);
      },
      [&](int r) {
        workers_.table(r, 1).PoolTrain(View(inputs[r].ids), {}, bags, inputs[r].rows.data());
      });
}

TEST_P(MemoryOfWorkers, GradientsAndTheirNorm) {
  std::vector<std::vector<ShardedTable*>> tables;
  for (int r = 0; r < kWorkers; ++r) tables.push_back(workers_.tables(r));
  const std::vector<bool> narrow{false, true, false, true};
  FailEach([&](int r) { LookUpAndAccumulate(r); },
           [&](int r) { ExchangeGradients(tables[r], narrow); });
  FailEach(
      [&](int r) {
        LookUpAndAccumulate(r);
        ExchangeGradients(tables[r], narrow);
      },
      [&](int r) { workers_.table(r).GradientSquaredNorm(); });
}

TEST_P(MemoryOfWorkers, TrainingByHandle) {
  std::vector<Inputs> inputs(kWorkers);
  const auto make = [&](int r) {
    inputs[r].ids = Ids(r);
    inputs[r].rows.resize(inputs[r].ids.size() * kDim);
    inputs[r].handles.resize(inputs[r].ids.size() * 2);
  };
  const auto look_up = [&](int r) {
    workers_.table(r).LookupWithHandles(View(inputs[r].ids), {}, inputs[r].rows.data(),
                                        inputs[r].handles.data());
  };
  FailEach(make, look_up);
  FailEach(
      [&](int r) {
        make(r);
        look_up(r);
      },
      [&](int r) {
        workers_.table(r).AccumulateByHandle(inputs[r].handles.data(), inputs[r].ids.size(),
                                             inputs[r].rows.data());
      });
}

TEST_P(MemoryOfWorkers, DenseGradients) {
  std::vector<std::vector<float>> values(kWorkers, std::vector<float>(5000, 1.0f));
  std::vector<std::vector<const float*>> from(kWorkers);
  std::vector<std::vector<SummedSpan>> to(kWorkers);
  for (int r = 0; r < kWorkers; ++r) {
    from[r] = {values[r].data()};
    to[r] = {{values[r].data(), values[r].size()}};
  }
  FailEach(Nothing, [&](int r) { AverageOverWorkers(dense_[r].get(), from[r], to[r]); });
}

INSTANTIATE_TEST_SUITE_P(Failing, MemoryOfWorkers, ::testing::Values(0, kWorkers - 1));

}  // namespace
}  // namespace msrec
