// SPDX-License-Identifier: Apache-2.0
#include "table/bag_pooling.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

#include "rows/for_shards.h"

namespace msrec {
namespace {

constexpr uint32_t kDroppedId = std::numeric_limits<uint32_t>::max();

}  // namespace

void BagPooling::Check(const IdView& ids, const BagView& bags) const {
  const std::string error = BagError(ids, bags);
  if (!error.empty()) throw std::invalid_argument(core_.Where(error));
}

void BagPooling::Reserve(Batch* batch, const BagView& bags) {
  batch->pooled = true;
  batch->grad_rows = bags.offsets.size;
  batch->bag.Reset(batch->n);
  batch->weight.Reset(batch->n);
  row_of_pos_.Reset(batch->n);
}

void BagPooling::Pool(Batch* batch, const IdView& ids, const BagView& bags, const float* unknown,
                      float* out) {
  const size_t num_bags = bags.offsets.size;
  uint32_t* row_of_pos = row_of_pos_.data();
  if (batch->begin[kNumShards] < batch->n) {
    std::fill_n(row_of_pos, batch->n, kDroppedId);
  }
  ForShards(*batch, [&](int s) {
    const size_t first = batch->begin[s];
    for (size_t i = first; i < batch->begin[s + 1]; ++i) {
      row_of_pos[batch->pos[i]] = static_cast<uint32_t>(first + batch->inverse[i]);
    }
  });
  constexpr size_t kBlock = 256;
  const auto pool_block = [&](int64_t block) {
    const size_t last_bag = std::min(num_bags, (static_cast<size_t>(block) + 1) * kBlock);
    for (size_t b = block * kBlock; b < last_bag; ++b) {
      const auto first = static_cast<size_t>(bags.offsets[b]);
      const size_t last = b + 1 < num_bags ? static_cast<size_t>(bags.offsets[b + 1]) : ids.size;
      PoolBag(batch, b, first, last, bags, unknown, out);
    }
  };
  ThreadPool::Global().ParallelFor(static_cast<int64_t>((num_bags + kBlock - 1) / kBlock),
                                   std::cref(pool_block));
}

// Moves the rows and weights of a bag, in place, to the beginning of the bag's range of positions.
void BagPooling::PoolBag(Batch* batch, size_t bag, size_t first, size_t last, const BagView& bags,
                         const float* unknown, float* out) {
  const int dim = core_.config.dim;
  const uint32_t* row_of_pos = row_of_pos_.data();
  uint32_t* rows = row_of_pos_.data() + first;
  float* weights = batch->weight.data() + first;
  size_t pooled = 0;
  double total = 0.0;
  for (size_t i = first; i < last; ++i) {
    if (row_of_pos[i] == kDroppedId) continue;
    const float w = bags.weights != nullptr ? bags.weights[i] : 1.0f;
    total += bags.combiner == Combiner::kSqrtN ? static_cast<double>(w) * w : w;
    rows[pooled] = row_of_pos[i];
    weights[pooled] = w;
    ++pooled;
  }
  const float scale = BagFactor(bags.combiner, total);
  const RowKernels& kernels = rows_ != nullptr ? *rows_ : *core_.context.row_kernels;
  kernels.pool(batch->row.data(), rows, weights, pooled, unknown, scale, dim, out + bag * dim);
  for (size_t i = first; i < last; ++i) {
    batch->bag[i] = static_cast<uint32_t>(bag);
    batch->weight[i] = (bags.weights != nullptr ? bags.weights[i] : 1.0f) * scale;
  }
}

}  // namespace msrec
