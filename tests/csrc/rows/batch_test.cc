// SPDX-License-Identifier: Apache-2.0
#include "rows/batch.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "testing.h"

namespace msrec {
namespace {

void MakeAllUnique(Batch* batch) {
  for (int s = 0; s < kNumShards; ++s) batch->MakeUnique(s);
}

// Every `stride`-th of `ids` is an id.
template <typename Id>
void Check(Batch* batch, const std::vector<Id>& ids, const IdFilter& filter, size_t stride = 1) {
  const IdView view{ids.data(), ids.size() / stride, sizeof(Id) == 8, stride};
  batch->Partition(view, filter);
  ASSERT_EQ(batch->n, view.size);
  MakeAllUnique(batch);
  std::vector<bool> seen(ids.size());
  std::set<int64_t> distinct;
  for (int s = 0; s < kNumShards; ++s) {
    ASSERT_LE(batch->begin[s], batch->begin[s + 1]);
    std::vector<uint32_t> occurrences(batch->unique[s]);
    uint32_t next = 0;
    for (size_t i = batch->begin[s]; i < batch->begin[s + 1]; ++i) {
      const uint32_t pos = batch->pos[i];
      ASSERT_LT(pos, ids.size());
      ASSERT_EQ(pos % stride, 0u);
      ASSERT_FALSE(seen[pos]);
      seen[pos] = true;
      if (i > batch->begin[s]) {
        ASSERT_GT(pos, batch->pos[i - 1]) << "ascending within a shard";
      }
      const uint32_t number = batch->inverse[i];
      ASSERT_LT(number, batch->unique[s]);
      ASSERT_LE(number, next) << "numbered by first appearance";
      next = std::max(next, number + 1);
      ++occurrences[number];
      ASSERT_EQ(batch->key[batch->begin[s] + number], ids[pos]);
      ASSERT_EQ(ShardOf(ids[pos], HashKey(ids[pos]), filter.identity), s);
    }
    for (uint32_t u = 0; u < batch->unique[s]; ++u) {
      ASSERT_EQ(batch->occurrences[batch->begin[s] + u], occurrences[u]);
      ASSERT_TRUE(distinct.insert(batch->key[batch->begin[s] + u]).second);
    }
  }
  for (size_t i = 0; i < ids.size(); i += stride) {
    const int64_t id = ids[i];
    const bool dropped = (filter.has_padding && id == filter.padding_key) ||
                         (filter.bounded() && (id < 0 || id >= filter.vocabulary));
    ASSERT_EQ(seen[i], !dropped) << id;
  }
}

class BatchTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, BatchTest, ::testing::Values(1, 2, 3));

TEST_P(BatchTest, PartitionsAndMakesUnique) {
  Threads threads(GetParam());
  Rng rng(1);
  Batch batch;  // reused, as the table does: sizes go up and down
  for (const size_t n : {0, 1, 5, 1000, 16383, 16384, 16385, 70000, 300}) {
    for (const uint64_t distinct : {1, 20, 1000, 1000000}) {
      ASSERT_NO_FATAL_FAILURE(Check(&batch, rng.Keys(n, distinct), {}));
      IdFilter padded;
      padded.has_padding = true;
      padded.padding_key = -1;
      ASSERT_NO_FATAL_FAILURE(Check(&batch, rng.Keys(n, distinct), padded));
      std::vector<int32_t> narrow(n);
      for (int32_t& id : narrow) id = static_cast<int32_t>(rng.Below(2 * distinct)) - 5;
      ASSERT_NO_FATAL_FAILURE(Check(&batch, narrow, padded));
      IdFilter identity = padded;
      identity.vocabulary = static_cast<int64_t>(distinct);
      identity.identity = true;
      ASSERT_NO_FATAL_FAILURE(Check(&batch, narrow, identity));
      ASSERT_NO_FATAL_FAILURE(Check(&batch, rng.Keys(3 * n, distinct), padded, 3));
      narrow.resize(n / 2 * 2);
      ASSERT_NO_FATAL_FAILURE(Check(&batch, narrow, identity, 2));
    }
  }
}

TEST(ZeroRows, WritesZerosToRowsAStrideApartAndToNoOthers) {
  constexpr size_t kRows = 4, kDim = 3;
  for (const size_t stride : {1, 2, 5}) {
    std::vector<float> floats(kRows * stride * kDim, 1.0f);
    std::vector<uint16_t> halves(floats.size(), 1);
    ZeroRows(floats.data(), kRows, stride, kDim);
    ZeroRows(RowsOut::Bfloat16(halves.data()), kRows, stride, kDim);
    for (size_t i = 0; i < floats.size(); ++i) {
      const bool zero = i / kDim % stride == 0;
      EXPECT_EQ(floats[i], zero ? 0.0f : 1.0f) << stride << ' ' << i;
      EXPECT_EQ(halves[i], zero ? 0 : 1) << stride << ' ' << i;
    }
  }
}

}  // namespace
}  // namespace msrec
