// SPDX-License-Identifier: Apache-2.0
#include "table/core/shard_digests.h"

#include <algorithm>
#include <new>
#include <utility>

#include "rows/row_digests.h"
#include "rows/row_values.h"
#include "table/core/row_rules.h"

namespace msrec {

uint64_t ShardDigests::DigestOf(const char* row) const {
  uint64_t digest;
  DigestRows(context_.layout, &row, 1, &digest);
  return digest;
}

void ShardDigests::Keep(DigestSums elsewhere) {
  std::vector<uint64_t> digests(rows_.end());
  std::vector<char> first(context_.is_static() ? rows_.stride() : 0);
  first_.swap(first);
  DigestSums sums = std::move(elsewhere);
  sums.Reserve(rows_.end());
  DigestBatch batch(context_.layout, [&](uint32_t id, uint64_t digest) {
    digests[id] = digest;
    sums.Replace(id, 0, digest, *Meta(rows_.Row(id)));
  });
  for (uint32_t id = 0; id < rows_.end(); ++id) {
    if (Meta(rows_.Row(id))->live) {
      batch.Add(id, rows_.Row(id));
    } else if (context_.identity()) {
      // Do not access the memory of rows that were never looked up.
      digests[id] = FirstDigest(static_cast<int64_t>(id) * kNumShards + number_);
      sums.Replace(id, 0, digests[id], *Meta(rows_.Row(id)));
    }
  }
  batch.Flush();
  digests_.swap(digests);
  sums_ = std::move(sums);
  kept_ = true;
}

void ShardDigests::Drop() noexcept {
  kept_ = false;
  std::vector<uint64_t>().swap(digests_);  // assigning {} would keep the memory
  std::vector<char>().swap(first_);
  sums_.Clear();
}

void ShardDigests::Grow(size_t places) noexcept {
  if (digests_.size() >= places) return;
  try {
    sums_.Reserve(places);
    digests_.resize(places);
  } catch (const std::bad_alloc&) {
    Drop();
  }
}

uint64_t ShardDigests::FirstDigest(int64_t key) noexcept {
  const RowLayout& layout = context_.layout;
  float value[kMaxDim];
  context_.kernels->initialize(context_.initializer, key, layout.dim, value);
  Meta(first_.data())->key = key;
  WriteValue(layout, value, first_.data());
  return DigestOf(first_.data());
}

__attribute__((noinline)) void ShardDigests::TakeAged(uint32_t id, uint64_t digest) noexcept {
  try {
    sums_.Replace(id, digests_[id], digest, *Meta(rows_.Row(id)));
    digests_[id] = digest;
  } catch (const std::bad_alloc&) {
    Drop();
  }
}

void ShardDigests::Remove(uint32_t id) noexcept {
  if (id >= digests_.size()) return;
  try {
    sums_.Remove(id, digests_[id]);
    digests_[id] = 0;
  } catch (const std::bad_alloc&) {
    Drop();
  }
}

void ShardDigests::RemoveBelow(const char* block) noexcept {
  if (!kept_) return;
  try {
    sums_.RemoveBelow(*Meta(block), DigestOf(block));
  } catch (const std::bad_alloc&) {
    Drop();
  }
}

void ShardDigests::Place(uint32_t id) noexcept {
  if (kept_) Grow(rows_.end());
  if (!kept_) return;
  const char* row = rows_.Row(id);
  digests_[id] = DigestOf(row);
  sums_.Place(id, *Meta(row));
}

void ShardDigests::Leave(uint32_t id) noexcept {
  if (kept_) Grow(rows_.end());
  if (!kept_) return;
  const char* row = rows_.Row(id);
  // Do not hash an untouched row. If the memory of an untouched row is damaged, the stored digest
  // stays in the sum and reveals the damage.
  if (Meta(row)->dirty) Take(id, DigestOf(row));
  if (kept_) digests_[id] = 0;
}

uint64_t ShardDigests::Sum() const {
  return sums_.Sum([this](RowMeta& meta) {
    FillTime(context_, &meta);
    return context_.Due(meta);
  });
}

void ShardDigests::DamagedRows(uint32_t part, uint32_t parts, std::vector<int64_t>* keys) const {
  DigestBatch batch(context_.layout, [&](uint32_t id, uint64_t digest) {
    if (digest != digests_[id]) keys->push_back(Meta(rows_.Row(id))->key);
  });
  const size_t places = std::min(digests_.size(), size_t{rows_.end()});
  const size_t end = places * (part + 1) / parts;
  for (size_t id = places * part / parts; id < end; ++id) {
    const char* row = rows_.Row(static_cast<uint32_t>(id));
    if (Meta(row)->live && !Meta(row)->dirty) batch.Add(static_cast<uint32_t>(id), row);
  }
  batch.Flush();
}

void ShardDigests::Clear() noexcept {
  digests_.clear();
  sums_.Clear();
}

}  // namespace msrec
