// SPDX-License-Identifier: Apache-2.0
//
// Shard: what changed, by epochs, and the digests that are kept of rows.
//
// Of each row in host memory a digest is kept, and the sum of all. Nothing is done when a row
// changes: rows that the epoch touched are hashed as they are exported, when they are in the
// processor's cache, and the sum gets the difference to what was kept of them. Where nothing was
// exported since the last change, they are hashed when the next epoch begins. A row that is demoted
// (shard_tiers.cc) is brought up to date and stays in the sum; one that is promoted is hashed.
#include <algorithm>
#include <new>
#include <utility>

#include "rows/exported_rows.h"
#include "rows/row_digests.h"
#include "rows/row_values.h"
#include "table/core/row_rules.h"
#include "table/core/shard.h"
#include "util/bytes.h"

namespace msrec {
namespace {

constexpr size_t kKeysAtOnce = 64;  // keys whose rows are loaded at the same time

// Past this the hardware's own prefetcher has caught on.
size_t PrefetchedBytes(size_t bytes) { return std::min<size_t>(bytes, 512); }

}  // namespace

template <typename Fn>
void Shard::ForPlaces(const int64_t* keys, size_t n, size_t bytes, const Fn& fn) const {
  uint64_t hashes[kKeysAtOnce];
  const void* chunks[kKeysAtOnce];
  uint32_t ids[kKeysAtOnce];
  for (size_t first = 0; first < n; first += kKeysAtOnce) {
    const size_t some = std::min(kKeysAtOnce, n - first);
    if (context_->identity()) {
      for (size_t i = first; i < first + some; ++i) {
        const char* row = store_.Row(static_cast<uint32_t>(keys[i] / kNumShards));
        for (size_t b = 0; b < bytes; b += kCacheLine) __builtin_prefetch(row + b);
      }
      for (size_t i = first; i < first + some; ++i) {
        fn(i, static_cast<uint32_t>(keys[i] / kNumShards));
      }
      continue;
    }
    for (size_t i = 0; i < some; ++i) {
      hashes[i] = IndexHash(keys[first + i]);
      chunks[i] = index_->Prefetch(hashes[i]);
    }
    for (size_t i = 0; i < some; ++i) {
      ids[i] = Index::Candidate(chunks[i], hashes[i]);
      if (ids[i] == Index::kNone) continue;
      const char* row = store_.Row(ids[i]);
      for (size_t b = 0; b < bytes; b += kCacheLine) __builtin_prefetch(row + b);
      __builtin_prefetch(row + bytes - 1);
      if (!keeps_digest_) continue;
      __builtin_prefetch(digests_.data() + ids[i], 1);
      sums_.Prefetch(ids[i]);
    }
    for (size_t i = 0; i < some; ++i) {
      const int64_t key = keys[first + i];
      const bool found = ids[i] != Index::kNone && Meta(store_.Row(ids[i]))->key == key;
      fn(first + i, found ? ids[i] : index_->Find(hashes[i], key));
    }
  }
}

template <typename Fn>
void Shard::ForTouched(size_t bytes, const Fn& fn) const {
  int64_t keys[kKeysAtOnce];
  const AppendLog<int64_t>& log = *changes_.current();
  for (size_t first = 0; first < log.size(); first += kKeysAtOnce) {
    const size_t n = std::min(kKeysAtOnce, log.size() - first);
    for (size_t i = 0; i < n; ++i) keys[i] = log[first + i];
    ForPlaces(keys, n, bytes, [&](size_t, uint32_t id) {
      if (id != Index::kNone) fn(id, store_.Row(id));
    });
  }
}

void Shard::TouchAll() {
  if (!changes_.enabled()) return;
  for (uint32_t id = 0; id < store_.end(); ++id) {
    char* row = context_->identity() ? IdentityRow(static_cast<int64_t>(id) * kNumShards + number_)
                                     : store_.Row(id);
    if (Meta(row)->live) Touch(row);
  }
}

void Shard::Changed(uint64_t since, std::vector<int64_t>* keys) const {
  const size_t first = keys->size();
  changes_.Collect(since, keys);
  std::sort(keys->begin() + first, keys->end());
  keys->erase(std::unique(keys->begin() + first, keys->end()), keys->end());
}

void Shard::Export(const std::vector<int64_t>& keys, size_t first, ExportedRows* out) {
  const RowLayout& layout = context_->layout;
  const size_t bytes =
      out->state_width > 0 ? layout.stride() : sizeof(RowMeta) + layout.value_bytes();
  if (keeps_digest_) GrowDigests(store_.end());
  DigestBatch digests(layout, [this](uint32_t id, uint64_t digest) { TakeDigest(id, digest); });
  ForPlaces(keys.data(), keys.size(), PrefetchedBytes(bytes), [&](size_t i, uint32_t id) {
    const char* row = id == Index::kNone ? nullptr : store_.Row(id);
    const bool due = row != nullptr && context_->Due(*Meta(row));
    PackRow(layout, keys[i], due ? nullptr : row, first + i, out);
    if (keeps_digest_ && row != nullptr && Meta(row)->dirty) digests.Add(id, row);
  });
  digests.Flush();
  digests_fresh_ = true;
}

void Shard::BeginEpoch(uint64_t epoch, uint64_t oldest) {
  if (changes_.enabled()) {
    if (keeps_digest_ && !digests_fresh_) GrowDigests(store_.end());
    if (keeps_digest_ && !digests_fresh_) {
      DigestTouched(true);
    } else {
      ForTouched(sizeof(RowMeta), [](uint32_t, char* row) { Meta(row)->dirty = 0; });
    }
  }
  changes_.Begin(epoch, oldest);
}

void Shard::StopRecording() {
  changes_.Disable();
  DropDigest();
  for (uint32_t id = 0; id < store_.end(); ++id) Meta(store_.Row(id))->dirty = 0;
}

// ---------------------------------------------------------------- digests

uint64_t Shard::DigestOf(const char* row) const {
  uint64_t digest;
  DigestRows(context_->layout, &row, 1, &digest);
  return digest;
}

void Shard::KeepDigest(DigestSums elsewhere) {
  std::vector<uint64_t> digests(store_.end());
  std::vector<char> first(context_->is_static() ? store_.stride() : 0);
  first_.swap(first);
  DigestSums sums = std::move(elsewhere);
  sums.Reserve(store_.end());
  DigestBatch batch(context_->layout, [&](uint32_t id, uint64_t digest) {
    digests[id] = digest;
    sums.Replace(id, 0, digest, *Meta(store_.Row(id)));
  });
  for (uint32_t id = 0; id < store_.end(); ++id) {
    if (Meta(store_.Row(id))->live) {
      batch.Add(id, store_.Row(id));
    } else if (context_->identity()) {
      // Memory of rows that were never seen stays untouched.
      digests[id] = FirstDigest(static_cast<int64_t>(id) * kNumShards + number_);
      sums.Replace(id, 0, digests[id], *Meta(store_.Row(id)));
    }
  }
  batch.Flush();
  digests_.swap(digests);
  sums_ = std::move(sums);
  keeps_digest_ = true;
}

void Shard::DropDigest() noexcept {
  keeps_digest_ = false;
  std::vector<uint64_t>().swap(digests_);  // assigning {} would keep the memory
  std::vector<char>().swap(first_);
  sums_.Clear();
}

void Shard::GrowDigests(size_t places) noexcept {
  if (digests_.size() >= places) return;
  try {
    sums_.Reserve(places);
    digests_.resize(places);
  } catch (const std::bad_alloc&) {
    DropDigest();
  }
}

uint64_t Shard::FirstDigest(int64_t key) noexcept {
  const RowLayout& layout = context_->layout;
  float value[kMaxDim];
  context_->kernels->initialize(context_->initializer, key, layout.dim, value);
  Meta(first_.data())->key = key;
  WriteValue(layout, value, first_.data());
  return DigestOf(first_.data());
}

void Shard::TakeDigest(uint32_t id, uint64_t digest) noexcept {
  if (!keeps_digest_) return;
  if (sums_.by_age()) {
    TakeAgedDigest(id, digest);
    return;
  }
  sums_.Replace(digests_[id], digest);
  digests_[id] = digest;
}

__attribute__((noinline)) void Shard::TakeAgedDigest(uint32_t id, uint64_t digest) noexcept {
  try {
    sums_.Replace(id, digests_[id], digest, *Meta(store_.Row(id)));
    digests_[id] = digest;
  } catch (const std::bad_alloc&) {
    DropDigest();
  }
}

void Shard::Undigest(uint32_t id) noexcept {
  if (id >= digests_.size()) return;
  try {
    sums_.Remove(id, digests_[id]);
    digests_[id] = 0;
  } catch (const std::bad_alloc&) {
    DropDigest();
  }
}

void Shard::PlaceDigest(uint32_t id) noexcept {
  if (keeps_digest_) GrowDigests(store_.end());
  if (!keeps_digest_) return;
  const char* row = store_.Row(id);
  digests_[id] = DigestOf(row);
  sums_.Place(id, *Meta(row));
}

void Shard::LeaveDigest(uint32_t id) noexcept {
  if (keeps_digest_) GrowDigests(store_.end());
  if (!keeps_digest_) return;
  const char* row = store_.Row(id);
  // One that nothing has touched is not hashed: if its memory has changed by itself, the sum must
  // tell.
  if (Meta(row)->dirty) TakeDigest(id, DigestOf(row));
  if (keeps_digest_) digests_[id] = 0;
}

void Shard::DigestTouched(bool clear) noexcept {
  const RowLayout& layout = context_->layout;
  DigestBatch digests(layout, [this](uint32_t id, uint64_t digest) { TakeDigest(id, digest); });
  const size_t value_end = sizeof(RowMeta) + layout.value_bytes();
  ForTouched(PrefetchedBytes(value_end), [&](uint32_t id, char* row) {
    if (!Meta(row)->dirty) return;
    digests.Add(id, row);
    if (clear) Meta(row)->dirty = 0;
  });
  digests.Flush();
}

uint64_t Shard::Digest() {
  if (!digests_fresh_) {
    GrowDigests(store_.end());
    if (!keeps_digest_) return 0;
    DigestTouched(false);
    digests_fresh_ = keeps_digest_;
  }
  return sums_.Sum([this](RowMeta& meta) {
    FillTime(*context_, &meta);
    return context_->Due(meta);
  });
}

void Shard::DamagedRows(uint32_t part, uint32_t parts, std::vector<int64_t>* keys) const {
  DigestBatch batch(context_->layout, [&](uint32_t id, uint64_t digest) {
    if (digest != digests_[id]) keys->push_back(Meta(store_.Row(id))->key);
  });
  const size_t places = std::min(digests_.size(), size_t{store_.end()});
  const size_t end = places * (part + 1) / parts;
  for (size_t id = places * part / parts; id < end; ++id) {
    const char* row = store_.Row(static_cast<uint32_t>(id));
    if (Meta(row)->live && !Meta(row)->dirty) batch.Add(static_cast<uint32_t>(id), row);
  }
  batch.Flush();
}

}  // namespace msrec
