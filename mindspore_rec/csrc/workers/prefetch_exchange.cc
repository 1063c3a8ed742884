// SPDX-License-Identifier: Apache-2.0
//
// Prefetching over workers: sends the keys of later batches to the owners of the keys' rows.
#include <memory>
#include <utility>

#include "util/bytes.h"
#include "workers/sharded_table.h"

namespace msrec {

int64_t ShardedTable::Prefetch(TableExchange* ahead, const IdView& ids) {
  Collective all(ahead, [this] { return "prefetch of " + TableNames({this}); });
  std::unique_ptr<KeptLookup> lookup;
  std::vector<size_t>& bytes = all.send_bytes();
  all.Try([&] {
    lookup = NewLookup();
    lookup->batch.pooled = false;
    lookup->batch.Partition(ids, {});
    lookup->keys.Plan(&lookup->batch, placement());
    size_t total = 0;
    for (int r = 0; r < all.size(); ++r) {
      bytes[r] = lookup->keys.count(placement().replicated() ? 0 : r) * sizeof(int64_t);
      total += bytes[r];
    }
    char* at = all.memory().send.Reset(total);
    std::vector<int64_t*> keys;
    for (int r = 0; r < all.size(); ++r) {
      keys.push_back(reinterpret_cast<int64_t*>(at));
      at += bytes[r];
    }
    lookup->keys.Write(lookup->batch, keys.data(), nullptr);
    // All workers get the same keys of a replicated table.
    for (int r = 1; placement().replicated() && r < all.size(); ++r) {
      CopyBytes(keys[r], keys[0], bytes[r]);
    }
  });
  all.Begin();
  all.Exchange(all.memory().send.data(), all.memory().recv.data());
  int64_t number = 0;
  all.Try([&] {
    const auto* keys = reinterpret_cast<const int64_t*>(all.memory().recv.data());
    number = table_->tiers().Prefetch(IdView{keys, all.received() / sizeof(int64_t), true});
  });
  if (lookup != nullptr) Recycle(std::move(lookup));
  all.Agree();
  return number;
}

}  // namespace msrec
