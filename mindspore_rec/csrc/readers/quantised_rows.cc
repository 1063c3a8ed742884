// SPDX-License-Identifier: Apache-2.0
#include "readers/quantised_rows.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>

#include "rows/row_digest.h"
#include "util/bucket_hash.h"
#include "util/headroom.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

constexpr int64_t kMostRowsOfStore = std::numeric_limits<uint32_t>::max() - 1;

}  // namespace

QuantisedRows::QuantisedRows(int32_t dim, int32_t bits, int64_t vocabulary, bool aged)
    : layout_{dim, bits, vocabulary == 0, aged}, vocabulary_(vocabulary) {
  if (dim < 1 || dim > kMaxDim) {
    throw std::invalid_argument("dim must be in [1, 8192], got " + std::to_string(dim));
  }
  if (bits != 8 && bits != 4) {
    throw std::invalid_argument("bits must be 8 or 4, got " + std::to_string(bits));
  }
  if (vocabulary < 0 || vocabulary > kMostRowsOfStore) {
    throw std::invalid_argument("vocabulary must be in [0, 2^32 - 2], got " +
                                std::to_string(vocabulary));
  }
  parts_ = NewParts();
}

std::vector<std::unique_ptr<QuantisedRows::Part>> QuantisedRows::NewParts() const {
  std::vector<std::unique_ptr<Part>> parts;
  for (int p = 0; p < (layout_.keyed ? kParts : 1); ++p) {
    parts.push_back(std::make_unique<Part>(layout_.stride(), layout_.keyed));
  }
  if (!layout_.keyed) {
    parts[0]->store.Reserve(static_cast<size_t>(vocabulary_));
    for (int64_t key = 0; key < vocabulary_; ++key) parts[0]->store.Allocate();
  }
  return parts;
}

// ---------------------------------------------------------------- changes

void QuantisedRows::Upsert(const IdView& keys, const float* values, const uint32_t* last_steps,
                           const uint32_t* last_times) {
  const auto dim = static_cast<size_t>(layout_.dim);
  UpsertBy(keys, last_steps, last_times, [&](size_t i, char* to) {
    QuantiseNumbers(values + i * dim, layout_.dim, layout_.bits, to);
  });
}

void QuantisedRows::UpsertCodes(const IdView& keys, const uint8_t* rows, const uint32_t* last_steps,
                                const uint32_t* last_times) {
  const size_t bytes = 4 + layout_.code_bytes();
  UpsertBy(keys, last_steps, last_times,
           [&](size_t i, char* to) { std::memcpy(to, rows + i * bytes, bytes); });
}

template <typename Write>
void QuantisedRows::UpsertBy(const IdView& keys, const uint32_t* last_steps,
                             const uint32_t* last_times, const Write& write) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  const size_t n = keys.size;
  for (size_t i = 0; !layout_.keyed && i < n; ++i) {
    if (keys[i] >= 0 && keys[i] < vocabulary_) continue;
    throw std::invalid_argument("keys[" + std::to_string(i) + "] is " + std::to_string(keys[i]) +
                                ", outside the vocabulary [0, " + std::to_string(vocabulary_) +
                                ")");
  }
  // Group the keys by part. The order of the keys within a part does not change.
  std::vector<uint64_t> hashes(n);
  size_t begin[kParts + 1] = {};
  for (size_t i = 0; i < n; ++i) {
    hashes[i] = layout_.keyed ? IndexHash(keys[i]) : static_cast<uint64_t>(keys[i]) << 32;
    ++begin[PartOf(hashes[i]) + 1];
  }
  for (int p = 0; p < kParts; ++p) begin[p + 1] += begin[p];
  std::vector<size_t> order(n);
  size_t next[kParts];
  std::copy(begin, begin + kParts, next);
  for (size_t i = 0; i < n; ++i) order[next[PartOf(hashes[i])]++] = i;
  if (layout_.keyed) {
    RequireHeadroom(HeadroomForKeys(n));
    for (int p = 0; p < kParts; ++p) parts_[p]->store.Reserve(begin[p + 1] - begin[p]);
  }
  const size_t header = layout_.header();
  ThreadPool::Global().ParallelFor(kParts, [&](int64_t p) {
    constexpr size_t kFar = 16, kNear = 8;
    Part& part = *parts_[layout_.keyed ? p : 0];
    for (size_t j = begin[p]; j < begin[p + 1]; ++j) {
      const size_t i = order[j];
      const int64_t key = keys[i];
      char* row;
      if (!layout_.keyed) {
        row = RowOfVocabulary(key);
      } else {
        if (j + kFar < begin[p + 1]) part.index.Prefetch(hashes[order[j + kFar]]);
        if (j + kNear < begin[p + 1]) {
          const uint64_t hash = hashes[order[j + kNear]];
          const uint32_t probable = Index::Candidate(part.index.Prefetch(hash), hash);
          if (probable != Index::kNone) __builtin_prefetch(part.store.Row(probable), 1);
        }
        uint32_t id = part.index.Find(hashes[i], key);
        if (id == Index::kNone) {
          id = part.store.Allocate();
          SetKeyOfQuantised(part.store.Row(id), key);
          try {
            part.index.Insert(hashes[i], id);
          } catch (...) {
            part.store.Free(id);
            throw;
          }
        }
        row = part.store.Row(id);
      }
      if (layout_.aged) {
        SetAgesOfQuantised(row, {last_steps != nullptr ? last_steps[i] : 0,
                                 last_times != nullptr ? last_times[i] : 0});
      }
      write(i, row + header);
    }
  });
}

size_t QuantisedRows::Erase(const IdView& keys) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (!layout_.keyed) {
    throw std::invalid_argument("rows are of a vocabulary and cannot be erased");
  }
  size_t erased = 0;
  for (size_t i = 0; i < keys.size; ++i) {
    const uint64_t hash = IndexHash(keys[i]);
    Part& part = *parts_[PartOf(hash)];
    const uint32_t id = part.index.Erase(hash, keys[i]);
    if (id == Index::kNone) continue;
    part.store.Free(id);
    ++erased;
  }
  return erased;
}

void QuantisedRows::Clear() {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  auto empty = NewParts();
  parts_.swap(empty);
}

size_t QuantisedRows::EraseOld(const AgeLimit& limit) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  size_t erased = 0;
  for (size_t p = 0; layout_.aged && p < parts_.size(); ++p) {
    Part& part = *parts_[p];
    std::vector<int64_t> old;
    ForEachRow(part, [&](char* row) {
      if (IsOld(row, &limit)) old.push_back(KeyOfQuantised(row));
    });
    for (const int64_t key : old) part.store.Free(part.index.Erase(IndexHash(key), key));
    erased += old.size();
  }
  return erased;
}

void QuantisedRows::StampTime(uint32_t time) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  for (size_t p = 0; layout_.aged && p < parts_.size(); ++p) {
    ForEachRow(*parts_[p], [&](char* row) {
      RowAges ages = AgesOfQuantised(row);
      if (ages.last_time == 0) ages.last_time = time;
      SetAgesOfQuantised(row, ages);
    });
  }
}

// ---------------------------------------------------------------- queries

// A freed place and a row of key 0 may both be all zeros, so only the index distinguishes rows from
// freed places.
void QuantisedRows::ForEachRow(const Part& part, const std::function<void(char*)>& fn) const {
  for (uint32_t id = 0; id < part.store.end(); ++id) {
    char* row = part.store.Row(id);
    const int64_t key = KeyOfQuantised(row);
    if (key == 0 && part.index.Find(IndexHash(key), key) != id) continue;
    fn(row);
  }
}

const char* QuantisedRows::FindRow(int64_t key) const {
  if (!layout_.keyed) return key >= 0 && key < vocabulary_ ? RowOfVocabulary(key) : nullptr;
  const uint64_t hash = IndexHash(key);
  const Part& part = *parts_[PartOf(hash)];
  const uint32_t id = part.index.Find(hash, key);
  return id == Index::kNone ? nullptr : part.store.Row(id);
}

const char* QuantisedRows::FindLive(int64_t key, const AgeLimit* limit) const {
  const char* row = FindRow(key);
  return row == nullptr || IsOld(row, limit) ? nullptr : row;
}

bool QuantisedRows::Contains(int64_t key, const AgeLimit* limit) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  return FindLive(key, limit) != nullptr;
}

RowAges QuantisedRows::AgesOf(int64_t key) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const char* row = layout_.aged ? FindRow(key) : nullptr;
  return row == nullptr ? RowAges{} : AgesOfQuantised(row);
}

std::vector<int64_t> QuantisedRows::Keys(const AgeLimit* limit) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  std::vector<int64_t> keys;
  for (int64_t key = 0; !layout_.keyed && key < vocabulary_; ++key) keys.push_back(key);
  for (size_t p = 0; layout_.keyed && p < parts_.size(); ++p) {
    ForEachRow(*parts_[p], [&](char* row) {
      if (!IsOld(row, limit)) keys.push_back(KeyOfQuantised(row));
    });
  }
  return keys;
}

void QuantisedRows::Digests(const int64_t* keys, size_t n, uint64_t* digests) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  for (size_t i = 0; i < n; ++i) {
    const char* row = FindRow(keys[i]);
    const size_t bytes = 4 + layout_.code_bytes();
    digests[i] = row == nullptr ? 0 : RowDigest(keys[i], row + layout_.header(), bytes);
  }
}

size_t QuantisedRows::Size() const { return MemoryHeld().rows; }

QuantisedRows::Memory QuantisedRows::MemoryHeld() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  Memory memory;
  for (const auto& part : parts_) {
    memory.rows += part->store.live();
    memory.slabs += part->store.bytes();
    if (!layout_.keyed) continue;
    memory.index += part->index.bytes();
    memory.entries += part->index.entries();
  }
  return memory;
}

}  // namespace msrec
