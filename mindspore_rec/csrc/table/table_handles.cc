// SPDX-License-Identifier: Apache-2.0
//
// Table: training by handle. A handle is two int64:
//   [0] shard << 32 | place of the row in the shard; -1: a key without a row, its gradient is
//   dropped [1] the table's number << 40 | the structure version in which the handle was given
// The version changes whenever a row leaves the table or rows are laid out anew, so a handle that
// passes the check names the row it was given for.
#include <cstring>

#include "table/for_shards.h"
#include "table/table_guard.h"
#include "util/headroom.h"

namespace msrec {
namespace {

constexpr int kVersionBits = 40;
constexpr int64_t kNoRow = -1;

}  // namespace

int64_t Table::HandleVersion() const {
  // With tiers below, rows of other steps may leave host memory at any time.
  const uint64_t moves = below_ != nullptr ? static_cast<uint64_t>(context_.step) : 0;
  const uint64_t version = (Structure() + moves) & ((uint64_t{1} << kVersionBits) - 1);
  return static_cast<int64_t>(static_cast<uint64_t>(config_.id) << kVersionBits | version);
}

void Table::LookupWithHandles(const IdView& ids, const IdFilter& filter, float* out,
                              int64_t* handles) {
  Guard::Run(this, [&] {
    if (trainable_) RequireTrainable();
    if (trainable_ && device_ != nullptr && !device_->shared()) RefuseUnshared("lookup by handle");
    auto batch = NewBatch(ids, filter);
    Resolve(batch.get(), trainable_ ? &Shard::FindOrInsert : &Shard::FindOnly, unknown_row_.data(),
            out);
    const int64_t version = HandleVersion();
    for (size_t i = 0; i < ids.size; ++i) {
      handles[2 * i] = kNoRow;
      handles[2 * i + 1] = version;
    }
    ForShards(*batch, [&](int s) {
      const size_t first = batch->begin[s];
      std::vector<int64_t> place(batch->unique[s], kNoRow);
      for (size_t u = 0; trainable_ && u < place.size(); ++u) {
        if (batch->row[first + u] == nullptr) continue;
        place[u] = int64_t{s} << 32 | shards_[s]->Place(batch->key[first + u]);
      }
      for (size_t i = first; i < batch->begin[s + 1]; ++i) {
        handles[2 * static_cast<size_t>(batch->pos[i])] = place[batch->inverse[i]];
      }
    });
    Recycle(std::move(batch));
  });
}

void Table::AccumulateByHandle(const int64_t* handles, size_t n, const float* grad) {
  Guard::Run(this, [&] {
    RequireOptimizer();
    const int64_t version = HandleVersion();
    const size_t dim = config_.dim;
    std::vector<int64_t> keys;
    std::vector<float> grads;
    keys.reserve(n);
    grads.reserve(n * dim);
    for (size_t i = 0; i < n; ++i) {
      const int64_t at = handles[2 * i];
      const int64_t given = handles[2 * i + 1];
      const auto refuse = [&](const std::string& why) {
        throw StaleHandle(Where("handles[" + std::to_string(i) + "] " + why));
      };
      if (given >> kVersionBits != version >> kVersionBits) {
        refuse("is of another table: handles must come from lookup_with_handles of this one");
      }
      if (given != version) {
        refuse(
            "is stale: a row has left the table since lookup_with_handles gave it; look the ids "
            "up again");
      }
      if (at == kNoRow) continue;
      const auto shard = static_cast<uint64_t>(at) >> 32;
      const char* row =
          shard < kNumShards ? shards_[shard]->At(static_cast<uint32_t>(at & 0xffffffff)) : nullptr;
      if (row == nullptr) refuse("names no row: its eviction is due, or it was made up");
      keys.push_back(Meta(row)->key);
      grads.insert(grads.end(), grad + i * dim, grad + (i + 1) * dim);
    }
    auto batch = NewBatch(IdView{keys.data(), keys.size(), true}, {});
    Resolve(batch.get(), &Shard::FindOnly, nullptr, nullptr);
    batch->structure = Structure();
    gradients_.Add(*batch, grads.data(), config_.dim, *context_.kernels);
    Recycle(std::move(batch));
  });
}

}  // namespace msrec
