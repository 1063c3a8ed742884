// SPDX-License-Identifier: Apache-2.0
//
// A batch whose rows several workers have against the same batch on one: normalization, dropout and
// their gradients.
#include "dense/batch_share.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dense/batch_norm.h"
#include "dense/linear.h"
#include "dense/program.h"
#include "dense_testing.h"
#include "on_workers.h"
#include "ops/worker_share.h"
#include "testing.h"
#include "workers/thread_group.h"

namespace msrec {
namespace {

constexpr int64_t kIn = 7, kHidden = 21, kMasks = 11;

// Two linear layers, and a normalization with a dropout between them. `at` gets the place of the
// new moving statistics.
std::unique_ptr<DenseProgram> Stack(int64_t* at) {
  auto program = std::make_unique<DenseProgram>(Precision::kFloat32);
  const auto add = [&](int64_t width) { return program->Whole(program->AddValue(width)); };
  const View x = add(kIn), first = add(kHidden), y = add(kHidden), z = add(3);
  program->AddInput(x);
  program->AddLayer(std::make_unique<Linear>(x, first, Weight{0}, Bias{}, Activation::kNone));
  BatchNorm norm;
  norm.input = first;
  norm.output = y;
  norm.gamma = 1;
  norm.beta = 2;
  norm.mean = 2;
  norm.variance = 3;
  norm.activation = Activation::kRelu;
  norm.masks = {0, 1, kMasks};
  *at = AddBatchNorm(norm, true, program.get());
  program->AddLayer(std::make_unique<Linear>(y, z, Weight{3}, Bias{}, Activation::kNone));
  program->AddOutput(z);
  program->Finish(4, 4);
  return program;
}

struct Given {
  std::vector<float> x, dz, masks, mean, variance;
  std::vector<std::vector<float>> parameters;
  std::vector<int32_t> used{3};
};

struct Found {
  std::vector<float> z, dx, moved;
  std::vector<std::vector<float>> gradients;
};

// Rows [begin, end) of what is given, by one worker or as one of several.
Found Passes(const Given& given, int64_t begin, int64_t end, BatchShare* share) {
  int64_t at = 0;
  const auto program = Stack(&at);
  const int64_t batch = end - begin;
  const int64_t slice = SliceRows(batch);
  const int64_t padded = (batch + slice - 1) / slice * slice;
  Poisoned saved(padded * program->saved_width()), packed(program->packed_bytes() / 4 + 1);
  Poisoned kept(padded * program->gradient_width());
  BatchRun run;
  run.training = true;
  run.batch = batch;
  run.share = share;
  if (share != nullptr) run.first_row = share->RowsBefore(batch);
  run.saved = saved.data();
  run.packed = reinterpret_cast<char*>(packed.data());
  run.gradients = kept.data();
  run.extras = {given.masks.data(), given.used.data(), given.mean.data(), given.variance.data()};
  Found found;
  found.z.resize(static_cast<size_t>(batch * 3));
  found.dx.resize(static_cast<size_t>(batch * kIn));
  for (const auto& parameter : given.parameters) {
    run.parameters.push_back(parameter.data());
    found.gradients.emplace_back(parameter.size());
  }
  for (auto& gradient : found.gradients) run.parameter_gradients.push_back(gradient.data());
  program->Forward(&run, {given.x.data() + begin * kIn}, {found.z.data()});
  found.moved.assign(packed.data() + at, packed.data() + at + 2 * kHidden);
  program->Backward(&run, {given.dz.data() + begin * 3}, {found.dx.data()});
  return found;
}

void ExpectNear(const std::vector<float>& found, const std::vector<float>& wanted,
                const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  double scale = 1;
  for (const float x : wanted) scale = std::max(scale, std::abs(static_cast<double>(x)));
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], wanted[i], 2e-5 * scale) << what << " " << i;
  }
}

class BatchShareTest : public OneDnnTest {};

TEST_F(BatchShareTest, WorkersComputeWhatOneDoesWithAllRows) {
  Rng rng(5);
  const std::vector<std::vector<int64_t>> splits = {{3, 5},       {0, 6, 1}, {1, 0, 0, 1},
                                                    {40, 1, 300}, {0, 1},    {2, 2, 2}};
  for (const auto& rows : splits) {
    for (const bool summed : {false, true}) {
      const auto workers = static_cast<int>(rows.size());
      std::string text = summed ? "summed" : "mean";
      std::vector<int64_t> begins{0};
      for (const int64_t n : rows) {
        begins.push_back(begins.back() + n);
        text += " " + std::to_string(n);
      }
      SCOPED_TRACE(text);
      const int64_t batch = begins.back();
      constexpr int64_t kSpare = 4;  // rows of idle workers, which are of no batch
      Given given{rng.Floats((batch + kSpare) * kIn),
                  rng.Floats((batch + kSpare) * 3),
                  {},
                  rng.Floats(kHidden),
                  std::vector<float>(kHidden, 1.5f),
                  {rng.Floats(kHidden * kIn), rng.Floats(kHidden), rng.Floats(kHidden),
                   rng.Floats(3 * kHidden)}};
      for (int64_t i = batch * kIn; i < (batch + kSpare) * kIn; ++i) given.x[i] *= 100.0f;
      for (int64_t i = 0; i < kMasks * kHidden; ++i) {
        given.masks.push_back(rng.Float(0.0f, 1.0f) < 0.4f ? 0.0f : 1.25f);
      }
      const Found one = Passes(given, 0, batch, nullptr);

      auto groups = MakeThreadGroups(workers, 60.0);
      std::vector<std::unique_ptr<TableExchange>> exchanges;
      std::vector<Found> many(rows.size());
      for (const auto& group : groups) {
        group->BeginStep(1, rows, summed);
        exchanges.push_back(std::make_unique<TableExchange>(group.get()));
      }
      const auto errors = OnThreads(rows.size(), [&](int r) {
        WorkerShare share(exchanges[r].get());
        // An idle worker runs some rows all the same.
        const int64_t begin = rows[r] > 0 ? begins[r] : batch;
        many[r] = Passes(given, begin, rows[r] > 0 ? begins[r + 1] : batch + kSpare, &share);
      });
      for (const std::string& error : errors) ASSERT_EQ(error, "");

      Found joined;
      for (const auto& gradient : one.gradients) joined.gradients.emplace_back(gradient.size());
      for (int r = 0; r < workers; ++r) {
        EXPECT_EQ(many[r].moved, many[0].moved) << "the same bits on all workers";
        if (rows[r] == 0) continue;
        joined.z.insert(joined.z.end(), many[r].z.begin(), many[r].z.end());
        joined.dx.insert(joined.dx.end(), many[r].dx.begin(), many[r].dx.end());
        for (size_t p = 0; p < joined.gradients.size(); ++p) {
          for (size_t i = 0; i < joined.gradients[p].size(); ++i) {
            joined.gradients[p][i] += many[r].gradients[p][i];
          }
        }
      }
      ExpectNear(many[0].moved, one.moved, "moving statistics");
      ExpectNear(joined.z, one.z, "outputs");
      // Each worker's gradients are here those of one loss, which all have the weight 1.
      if (!summed) continue;
      ExpectNear(joined.dx, one.dx, "gradients of inputs");
      for (size_t p = 0; p < one.gradients.size(); ++p) {
        ExpectNear(joined.gradients[p], one.gradients[p], "gradients of parameter");
      }
    }
  }
}

// Losses that are means count by their rows: worker r's gradients are n / n_r as large.
TEST_F(BatchShareTest, GradientsOfMeansCountByTheirWeights) {
  Rng rng(6);
  const std::vector<int64_t> rows = {2, 5, 1};
  const int64_t batch = 8;
  Given given{rng.Floats(batch * kIn),
              rng.Floats(batch * 3),
              std::vector<float>(kMasks * kHidden, 1.0f),
              rng.Floats(kHidden),
              std::vector<float>(kHidden, 1.5f),
              {rng.Floats(kHidden * kIn), rng.Floats(kHidden), rng.Floats(kHidden),
               rng.Floats(3 * kHidden)}};
  const Found one = Passes(given, 0, batch, nullptr);
  Given own = given;  // each worker's gradients of its own mean
  const int64_t begins[] = {0, 2, 7, 8};
  for (size_t r = 0; r < rows.size(); ++r) {
    const float more = static_cast<float>(batch) / static_cast<float>(rows[r]);
    for (int64_t i = begins[r] * 3; i < begins[r + 1] * 3; ++i) own.dz[i] *= more;
  }
  auto groups = MakeThreadGroups(3, 60.0);
  std::vector<std::unique_ptr<TableExchange>> exchanges;
  std::vector<Found> many(rows.size());
  for (const auto& group : groups) {
    group->BeginStep(1, rows);
    exchanges.push_back(std::make_unique<TableExchange>(group.get()));
  }
  const auto errors = OnThreads(rows.size(), [&](int r) {
    WorkerShare share(exchanges[r].get());
    many[r] = Passes(own, begins[r], begins[r + 1], &share);
  });
  for (const std::string& error : errors) ASSERT_EQ(error, "");
  std::vector<float> dx, dw(one.gradients[0].size());
  for (size_t r = 0; r < rows.size(); ++r) {
    const float weight = groups[r]->weight();
    for (const float g : many[r].dx) dx.push_back(weight * g);
    for (size_t i = 0; i < dw.size(); ++i) dw[i] += weight * many[r].gradients[0][i];
  }
  ExpectNear(dx, one.dx, "gradients of inputs");
  ExpectNear(dw, one.gradients[0], "gradients of the first weight");
}

TEST(WorkerShareTest, RowsBeforeAWorkersOwn) {
  auto groups = MakeThreadGroups(3, 5.0);
  EXPECT_EQ(groups[2]->RowsBefore(4), 8) << "all have as many where nobody has said";
  for (const auto& group : groups) group->BeginStep(1, {2, 0, 3});
  EXPECT_EQ(groups[0]->RowsBefore(2), 0);
  EXPECT_EQ(groups[1]->RowsBefore(7), 2);
  EXPECT_EQ(groups[2]->RowsBefore(3), 2);
  EXPECT_EQ(groups[2]->RowsBefore(12), 8) << "four rows of each sample";
}

}  // namespace
}  // namespace msrec
