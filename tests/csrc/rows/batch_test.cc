// SPDX-License-Identifier: Apache-2.0
#include "rows/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "testing.h"

namespace msrec {
namespace {

void MakeAllUnique(Batch* batch) {
  for (int s = 0; s < kNumShards; ++s) batch->MakeUnique(s);
}

constexpr uint64_t kMostOccurrences = std::numeric_limits<uint32_t>::max();

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
    std::vector<uint64_t> occurrences(batch->unique[s]);
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
      occurrences[number] += filter.counts != nullptr ? filter.counts[pos / stride] : 1;
      ASSERT_EQ(batch->key[batch->begin[s] + number], ids[pos]);
      ASSERT_EQ(ShardOf(ids[pos], HashKey(ids[pos]), filter.identity), s);
    }
    for (uint32_t u = 0; u < batch->unique[s]; ++u) {
      // As many as a uint32 can be, and no more.
      const auto sum = std::min<uint64_t>(occurrences[u], kMostOccurrences);
      ASSERT_EQ(batch->occurrences[batch->begin[s] + u], sum);
      ASSERT_EQ(batch->Occurrences(batch->begin[s] + u),
                std::min(sum * filter.coefficient, kMostOccurrences));
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
      IdFilter counted = padded;
      counted.coefficient = 1 + static_cast<uint32_t>(rng.Below(1000));
      std::vector<uint32_t> counts(n);
      for (uint32_t& count : counts) {
        count = static_cast<uint32_t>(rng.OneIn(9) ? rng.Bits() : rng.Below(4));
      }
      if (n > 0) counted.counts = counts.data();
      ASSERT_NO_FATAL_FAILURE(Check(&batch, rng.Keys(3 * n, distinct), counted, 3));
      narrow.resize(n / 2 * 2);
      ASSERT_NO_FATAL_FAILURE(Check(&batch, narrow, identity, 2));
    }
  }
}

TEST(Batch, OfMorePlacesThanAUint32CountsIsRefused) {
  for (const size_t stride : {size_t{1}, size_t{3}}) {
    IdView ids;  // whose data is not read
    ids.stride = stride;
    ids.size = (kMostOccurrences - 1) / stride;
    EXPECT_NO_THROW(CheckBatchSize(ids, "t"));
    ids.size += 1;
    EXPECT_THROW(CheckBatchSize(ids, "t"), std::invalid_argument);
  }
}

TEST(Batch, AHashOfIdsIsOfTheirNumbersInTheirOrder) {
  Rng rng(5);
  std::set<uint64_t> hashes;
  for (size_t n = 0; n < 50; ++n) {
    std::vector<int64_t> ids(n);
    for (int64_t& id : ids) id = static_cast<int64_t>(rng.Below(100)) - 50;
    const uint64_t hash = HashIds(ViewOf(ids));
    std::vector<int32_t> apart(3 * n, 7);
    for (size_t i = 0; i < n; ++i) apart[3 * i] = static_cast<int32_t>(ids[i]);
    EXPECT_EQ(HashIds({apart.data(), n, false, 3}), hash);
    hashes.insert(hash);
    for (size_t i = 0; i + 1 < n; ++i) {
      std::swap(ids[i], ids[i + 1]);
      EXPECT_EQ(HashIds(ViewOf(ids)) == hash, ids[i] == ids[i + 1]);
      std::swap(ids[i], ids[i + 1]);
    }
  }
  EXPECT_EQ(hashes.size(), 50u);
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
