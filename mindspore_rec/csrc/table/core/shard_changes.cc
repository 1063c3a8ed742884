// SPDX-License-Identifier: Apache-2.0
//
// Shard: changes by epoch, and the digests of rows (shard_digests.h).
//
// The shard keeps a digest of each row in host memory, and the sum of all digests. When a row
// changes, its digest is not computed immediately. Export computes the digests of the rows that
// were touched in the epoch, while these rows are in the processor's cache. After Export, the sum
// of all digests includes the row's new digest in place of the old digest. If rows changed after
// the last Export, BeginEpoch computes the digests of these rows. Before a dirty row is demoted
// (shard_tiers.cc), the row's digest is computed. The digest of a demoted row stays in the sum.
// When a row is promoted, its digest is computed.
#include <algorithm>

#include "rows/exported_rows.h"
#include "rows/row_digests.h"
#include "table/core/shard.h"
#include "util/bytes.h"

namespace msrec {
namespace {

constexpr size_t kKeysAtOnce = 64;  // keys whose rows are loaded at the same time

// Return the number of bytes per row to load with prefetch instructions. The processor's hardware
// prefetcher loads the rest of the row.
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
      if (digests_.kept()) digests_.Prefetch(ids[i]);
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

void Shard::Export(const std::vector<int64_t>& keys, size_t first, ExportedRows* out) {
  const RowLayout& layout = context_->layout;
  const size_t bytes =
      out->state_width > 0 ? layout.stride() : sizeof(RowMeta) + layout.value_bytes();
  if (digests_.kept()) digests_.Grow(store_.end());
  DigestBatch digests(layout, [this](uint32_t id, uint64_t digest) { digests_.Take(id, digest); });
  ForPlaces(keys.data(), keys.size(), PrefetchedBytes(bytes), [&](size_t i, uint32_t id) {
    const char* row = id == Index::kNone ? nullptr : store_.Row(id);
    const bool due = row != nullptr && context_->Due(*Meta(row));
    PackRow(layout, keys[i], due ? nullptr : row, first + i, out);
    if (digests_.kept() && row != nullptr && Meta(row)->dirty) digests.Add(id, row);
  });
  digests.Flush();
  digests_.SetFresh(true);
}

void Shard::BeginEpoch(uint64_t epoch, uint64_t oldest) {
  if (changes_.enabled()) {
    if (digests_.kept() && !digests_.fresh()) digests_.Grow(store_.end());
    if (digests_.kept() && !digests_.fresh()) {
      DigestTouched(true);
    } else {
      ForTouched(sizeof(RowMeta), [](uint32_t, char* row) { Meta(row)->dirty = 0; });
    }
  }
  changes_.Begin(epoch, oldest);
}

void Shard::StopRecording() {
  changes_.Disable();
  digests_.Drop();
  for (uint32_t id = 0; id < store_.end(); ++id) Meta(store_.Row(id))->dirty = 0;
}

// ---------------------------------------------------------------- digests

void Shard::DigestTouched(bool clear) noexcept {
  const RowLayout& layout = context_->layout;
  DigestBatch digests(layout, [this](uint32_t id, uint64_t digest) { digests_.Take(id, digest); });
  const size_t value_end = sizeof(RowMeta) + layout.value_bytes();
  ForTouched(PrefetchedBytes(value_end), [&](uint32_t id, char* row) {
    if (!Meta(row)->dirty) return;
    digests.Add(id, row);
    if (clear) Meta(row)->dirty = 0;
  });
  digests.Flush();
}

uint64_t Shard::Digest() {
  if (!digests_.fresh()) {
    digests_.Grow(store_.end());
    if (!digests_.kept()) return 0;
    DigestTouched(false);
    digests_.SetFresh(digests_.kept());
  }
  return digests_.Sum();
}

}  // namespace msrec
