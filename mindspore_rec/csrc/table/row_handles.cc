// SPDX-License-Identifier: Apache-2.0
#include "table/row_handles.h"

#include <cstring>
#include <string>

#include "rows/for_shards.h"

namespace msrec {
namespace {

constexpr int64_t kNoRow = -1;
constexpr int kPlaceBits = 36;
constexpr int kTagBits = 40;  // those in the second number
constexpr int kWorkerBits = 12;
constexpr int kWorkerAt = kPlaceBits + 12;  // above the 12 bits of the tag that are left
static_assert(Placement::kMostWorkers <= 1u << kWorkerBits);
constexpr uint64_t kNumberMask = (uint64_t{1} << 23) - 1;

constexpr uint64_t Low(int bits) { return (uint64_t{1} << bits) - 1; }

}  // namespace

RowHandles::Tags::Tags(const SipHash& key, uint64_t version, int64_t table,
                       const Placement& placement)
    : keyed_(key),
      number_((static_cast<uint64_t>(table) & kNumberMask) << kTagBits),
      placement_(placement) {
  keyed_.Add(version);
  const uint64_t absent = Of(~uint64_t{0}, 0);
  no_row_ = static_cast<int64_t>(number_ | (absent & Low(kTagBits)));
}

uint64_t RowHandles::Tags::Of(uint64_t place, int64_t key) const {
  SipHash hash = keyed_;
  hash.Add(place);
  hash.Add(static_cast<uint64_t>(key));
  return hash.Sum();
}

bool RowHandles::Tags::OfTable(const int64_t* handle) const {
  return static_cast<uint64_t>(handle[1]) >> kTagBits == number_ >> kTagBits;
}

void RowHandles::Tags::Give(uint64_t place, int64_t key, int64_t* handle) const {
  const uint64_t tag = Of(place, key);
  uint64_t upper = tag >> kTagBits;
  if (placement_.workers > 1) {
    upper = (upper & Low(kWorkerAt - kPlaceBits)) | (placement_.rank & Low(kWorkerBits))
                                                        << (kWorkerAt - kPlaceBits);
  }
  handle[0] = static_cast<int64_t>(upper << kPlaceBits | place);
  handle[1] = static_cast<int64_t>(number_ | (tag & Low(kTagBits)));
}

void RowHandles::Tags::GiveNoRow(int64_t* handle) const {
  handle[0] = kNoRow;
  handle[1] = no_row_;
}

RowHandles::Tags RowHandles::Now() const {
  // If the table has lower tiers, handles are valid for one step only, because rows of other steps
  // may leave host memory.
  const int64_t step = core_.context.tiered ? core_.context.step : 0;
  return Tags(key_, core_.Structure() + static_cast<uint64_t>(step), core_.config.id,
              core_.context.placement);
}

uint32_t RowHandles::WorkerOf(const int64_t* handle) {
  return static_cast<uint32_t>(static_cast<uint64_t>(handle[0]) >> kWorkerAt & Low(kWorkerBits));
}

void RowHandles::Adopt(const Tags& tags, int64_t* handle) const {
  if (NoRow(handle)) {
    tags.GiveNoRow(handle);
    return;
  }
  const uint64_t number = (static_cast<uint64_t>(core_.config.id) & kNumberMask) << kTagBits;
  handle[1] = static_cast<int64_t>(number | (static_cast<uint64_t>(handle[1]) & Low(kTagBits)));
}

void RowHandles::RequireOfTable(const Tags& tags, const int64_t* handles, size_t i) const {
  if (tags.OfTable(handles + 2 * i)) return;
  throw StaleHandle(core_.Where("handles[" + std::to_string(i) + "] is of another table: handles " +
                                "must come from lookup_with_handles of this one"));
}

void RowHandles::Give(Batch* batch, bool trained, int64_t* handles) const {
  const Tags tags = Now();
  for (size_t i = 0; i < batch->n; ++i) tags.GiveNoRow(handles + 2 * i);
  if (!trained) return;
  ForShards(*batch, [&](int s) {
    const size_t first = batch->begin[s];
    int64_t* given = batch->handles.data() + 2 * first;
    for (size_t u = 0; u < batch->unique[s]; ++u) {
      int64_t* handle = given + 2 * u;
      tags.GiveNoRow(handle);
      if (batch->row[first + u] == nullptr) continue;
      const int64_t key = batch->key[first + u];
      tags.Give(static_cast<uint64_t>(s) << 32 | core_.shards[s]->Place(key), key, handle);
    }
    for (size_t i = first; i < batch->begin[s + 1]; ++i) {
      std::memcpy(handles + 2 * static_cast<size_t>(batch->pos[i]),
                  given + 2 * static_cast<size_t>(batch->inverse[i]), 2 * sizeof(int64_t));
    }
  });
}

const char* RowHandles::Row(const Tags& tags, const int64_t* handles, size_t i) const {
  const int64_t* handle = handles + 2 * i;
  const auto refuse = [&](const std::string& why) {
    throw StaleHandle(core_.Where("handles[" + std::to_string(i) + "] " + why));
  };
  if (!tags.OfTable(handle)) {
    refuse("is of another table: handles must come from lookup_with_handles of this one");
  }
  int64_t good[2] = {};
  tags.GiveNoRow(good);
  if (std::memcmp(good, handle, sizeof(good)) == 0) return nullptr;
  const uint64_t place = static_cast<uint64_t>(handle[0]) & Low(kPlaceBits);
  const uint64_t shard = place >> 32;
  const char* row = handle[0] >= 0 && shard < kNumShards
                        ? core_.shards[shard]->At(static_cast<uint32_t>(place))
                        : nullptr;
  if (row != nullptr) tags.Give(place, Meta(row)->key, good);
  if (row == nullptr || std::memcmp(good, handle, sizeof(good)) != 0) {
    refuse(
        "names no row of now: a row has left the table, or its eviction is due, since "
        "lookup_with_handles gave it (look the ids up again), or it was made up");
  }
  return row;
}

}  // namespace msrec
