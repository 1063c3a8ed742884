// SPDX-License-Identifier: Apache-2.0
//
// Table: training by handle. A handle is two int64:
//   [0] tag, its upper 24 bits << 36 | shard << 32 | place of the row in the shard; or -1: a key
//       without a row, its gradient is dropped
//   [1] the table's number, 23 bits << 40 | tag, its lower 40 bits
// The tag is a hash, under a key that only the table has, of the row's key and place and of the
// structure version in which the handle was given: no other handle passes for one that was given.
// The version changes whenever a row leaves the table or rows are laid out anew, so a handle that
// passes names the row it was given for.
#include <cstring>

#include "table/for_shards.h"
#include "table/table_guard.h"
#include "util/headroom.h"

namespace msrec {
namespace {

constexpr int64_t kNoRow = -1;
constexpr int kPlaceBits = 36;
constexpr int kTagBits = 40;  // those in the second number
constexpr uint64_t kNumberMask = (uint64_t{1} << 23) - 1;

constexpr uint64_t Low(int bits) { return (uint64_t{1} << bits) - 1; }

// The tags of one version, put together with what they are of.
class Tags {
 public:
  Tags(const SipHash& keyed, uint64_t version, int64_t table)
      : keyed_(keyed), number_((static_cast<uint64_t>(table) & kNumberMask) << kTagBits) {
    keyed_.Add(version);
    const uint64_t absent = Of(~uint64_t{0}, 0);
    no_row_ = static_cast<int64_t>(number_ | (absent & Low(kTagBits)));
  }

  int64_t no_row() const { return no_row_; }
  bool OfTable(const int64_t* handle) const {
    return static_cast<uint64_t>(handle[1]) >> kTagBits == number_ >> kTagBits;
  }
  // The handle of the row with that key in that place.
  void Give(uint64_t place, int64_t key, int64_t* handle) const {
    const uint64_t tag = Of(place, key);
    handle[0] = static_cast<int64_t>((tag >> kTagBits) << kPlaceBits | place);
    handle[1] = static_cast<int64_t>(number_ | (tag & Low(kTagBits)));
  }

 private:
  uint64_t Of(uint64_t place, int64_t key) const {
    SipHash hash = keyed_;
    hash.Add(place);
    hash.Add(static_cast<uint64_t>(key));
    return hash.Sum();
  }

  SipHash keyed_;
  const uint64_t number_;
  int64_t no_row_;
};

}  // namespace

uint64_t Table::HandleVersion() const {
  // With tiers below, rows of other steps may leave host memory at any time.
  return core_.Structure() + (below_ != nullptr ? static_cast<uint64_t>(core_.context.step) : 0);
}

void Table::LookupWithHandles(const IdView& ids, const IdFilter& filter, float* out,
                              int64_t* handles) {
  Guard::Run(this, [&] {
    if (core_.trainable) core_.RequireTrainable();
    if (core_.trainable && core_.device != nullptr && !core_.device->shared())
      core_.RefuseUnshared("lookup by handle");
    auto batch = core_.lookups.NewBatch(ids, filter);
    Resolve(batch.get(), core_.trainable ? &Shard::FindOrInsert : &Shard::FindOnly,
            core_.unknown_row.data(), out);
    const Tags tags(handle_key_, HandleVersion(), core_.config.id);
    for (size_t i = 0; i < ids.size; ++i) {
      handles[2 * i] = kNoRow;
      handles[2 * i + 1] = tags.no_row();
    }
    if (core_.trainable) {
      ForShards(*batch, [&](int s) {
        const size_t first = batch->begin[s];
        std::vector<int64_t> given(2 * batch->unique[s]);
        for (size_t u = 0; u < batch->unique[s]; ++u) {
          int64_t* handle = given.data() + 2 * u;
          handle[0] = kNoRow;
          handle[1] = tags.no_row();
          if (batch->row[first + u] == nullptr) continue;
          const int64_t key = batch->key[first + u];
          tags.Give(static_cast<uint64_t>(s) << 32 | core_.shards[s]->Place(key), key, handle);
        }
        for (size_t i = first; i < batch->begin[s + 1]; ++i) {
          std::memcpy(handles + 2 * static_cast<size_t>(batch->pos[i]),
                      given.data() + 2 * static_cast<size_t>(batch->inverse[i]),
                      2 * sizeof(int64_t));
        }
      });
    }
    core_.lookups.Recycle(std::move(batch));
  });
}

void Table::AccumulateByHandle(const int64_t* handles, size_t n, const float* grad) {
  Guard::Run(this, [&] {
    core_.RequireOptimizer();
    const Tags tags(handle_key_, HandleVersion(), core_.config.id);
    const size_t dim = core_.config.dim;
    std::vector<int64_t> keys;
    std::vector<float> grads;
    keys.reserve(n);
    grads.reserve(n * dim);
    for (size_t i = 0; i < n; ++i) {
      const int64_t* handle = handles + 2 * i;
      const auto refuse = [&](const std::string& why) {
        throw StaleHandle(core_.Where("handles[" + std::to_string(i) + "] " + why));
      };
      if (!tags.OfTable(handle)) {
        refuse("is of another table: handles must come from lookup_with_handles of this one");
      }
      if (handle[0] == kNoRow && handle[1] == tags.no_row()) continue;
      const uint64_t place = static_cast<uint64_t>(handle[0]) & Low(kPlaceBits);
      const uint64_t shard = place >> 32;
      const char* row = handle[0] >= 0 && shard < kNumShards
                            ? core_.shards[shard]->At(static_cast<uint32_t>(place))
                            : nullptr;
      int64_t good[2] = {};
      if (row != nullptr) tags.Give(place, Meta(row)->key, good);
      if (row == nullptr || std::memcmp(good, handle, sizeof(good)) != 0) {
        refuse(
            "names no row of now: a row has left the table, or its eviction is due, since "
            "lookup_with_handles gave it (look the ids up again), or it was made up");
      }
      keys.push_back(Meta(row)->key);
      grads.insert(grads.end(), grad + i * dim, grad + (i + 1) * dim);
    }
    auto batch = core_.lookups.NewBatch(IdView{keys.data(), keys.size(), true}, {});
    Resolve(batch.get(), &Shard::FindOnly, nullptr, nullptr);
    batch->structure = core_.Structure();
    core_.lookups.gradients().Add(*batch, grads.data(), core_.config.dim, *core_.context.kernels);
    core_.lookups.Recycle(std::move(batch));
  });
}

}  // namespace msrec
