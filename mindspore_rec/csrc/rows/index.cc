// SPDX-License-Identifier: Apache-2.0
#include "rows/index.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "rows/row_layout.h"
#include "util/bucket_hash.h"

namespace msrec {
namespace {

constexpr uint8_t kSaturated = 255;

// Maximum number of leading hash bits that select a directory entry. The low 32 bits of the hash
// select the chunk and the tag.
constexpr int kMaxDepth = 26;

}  // namespace

Index::Index(const SlabStore* rows) : rows_(rows) {
  // Reserve memory before the call of NewChunks: if the reservation failed after this call, the
  // chunks would leak.
  segments_.reserve(1);
  directory_.reserve(1);
  Chunk* chunks = NewChunks(1);
  segments_.push_back({chunks, 1, 0, 0});
  directory_.push_back({chunks, 1, 0});
  entries_ = kChunkEntries;
  bytes_ = sizeof(Chunk) + sizeof(Entry) + sizeof(Segment);
}

Index::~Index() {
  for (const Segment& segment : segments_) std::free(segment.chunks);
}

Index::Chunk* Index::NewChunks(uint32_t num_chunks) {
  void* block = std::aligned_alloc(alignof(Chunk), num_chunks * sizeof(Chunk));
  if (block == nullptr) throw std::bad_alloc();
  std::memset(block, 0, num_chunks * sizeof(Chunk));
  return static_cast<Chunk*>(block);
}

// Return a bit mask: bit i is set if the tag of entry i equals `tag`.
uint32_t Index::Match(const Chunk& chunk, uint8_t tag) {
#if defined(__SSE2__)
  const __m128i tags = _mm_load_si128(reinterpret_cast<const __m128i*>(&chunk));
  const __m128i equal = _mm_cmpeq_epi8(tags, _mm_set1_epi8(static_cast<char>(tag)));
  return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & 0xfffu;
#elif defined(__aarch64__)
  const uint8x16_t tags = vld1q_u8(reinterpret_cast<const uint8_t*>(&chunk));
  const uint8x16_t weights = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x16_t bits = vandq_u8(vceqq_u8(tags, vdupq_n_u8(tag)), weights);
  return (vaddv_u8(vget_low_u8(bits)) | (uint32_t{vaddv_u8(vget_high_u8(bits))} << 8)) & 0xfffu;
#else
  uint32_t bits = 0;
  for (int i = 0; i < kChunkEntries; ++i) bits |= static_cast<uint32_t>(chunk.tag[i] == tag) << i;
  return bits;
#endif
}

int64_t Index::KeyOf(uint32_t id) const { return Meta(rows_->Row(id))->key; }

uint32_t Index::Candidate(const void* home_chunk, uint64_t hash) {
  const auto* chunk = static_cast<const Chunk*>(home_chunk);
  const uint32_t match = Match(*chunk, Tag(hash));
  return match == 0 ? kNone : chunk->row[__builtin_ctz(match)];
}

uint32_t Index::Find(uint64_t hash, int64_t key) const {
  const Entry& entry = EntryOf(hash);
  const uint8_t tag = Tag(hash);
  uint32_t at = HomeOf(hash, entry.num_chunks);
  for (uint32_t probes = 0; probes < entry.num_chunks; ++probes) {
    const Chunk& chunk = entry.chunks[at];
    for (uint32_t match = Match(chunk, tag); match != 0; match &= match - 1) {
      const uint32_t id = chunk.row[__builtin_ctz(match)];
      if (KeyOf(id) == key) return id;
    }
    if (chunk.overflow == 0) return kNone;
    if (++at == entry.num_chunks) at = 0;
  }
  return kNone;
}

uint32_t Index::Probes(uint64_t hash, int64_t key) const {
  const Entry& entry = EntryOf(hash);
  const uint8_t tag = Tag(hash);
  uint32_t at = HomeOf(hash, entry.num_chunks);
  uint32_t probes = 1;
  for (; probes < entry.num_chunks; ++probes) {
    const Chunk& chunk = entry.chunks[at];
    for (uint32_t match = Match(chunk, tag); match != 0; match &= match - 1) {
      if (KeyOf(chunk.row[__builtin_ctz(match)]) == key) return probes;
    }
    if (chunk.overflow == 0) return probes;
    if (++at == entry.num_chunks) at = 0;
  }
  return probes;
}

// Requires: the chunks have a free entry.
void Index::Place(Chunk* chunks, uint32_t num_chunks, uint64_t hash, uint32_t id) {
  uint32_t at = HomeOf(hash, num_chunks);
  for (;;) {
    Chunk& chunk = chunks[at];
    const uint32_t free = Match(chunk, 0);
    if (free != 0) {
      const int number = __builtin_ctz(free);
      chunk.tag[number] = Tag(hash);
      chunk.row[number] = id;
      return;
    }
    if (chunk.overflow != kSaturated) ++chunk.overflow;
    if (++at == num_chunks) at = 0;
  }
}

void Index::Insert(uint64_t hash, uint32_t id) {
  const Segment& segment = segments_[EntryOf(hash).segment];
  if (segment.size >= segment.num_chunks * 10) {
    const bool full = segment.size == segment.num_chunks * kChunkEntries;
    try {
      Grow(hash);
    } catch (const std::bad_alloc&) {
      if (full) throw;
      behind_ = true;
    }
  }
  const Entry& entry = EntryOf(hash);
  Place(entry.chunks, entry.num_chunks, hash, id);
  ++segments_[entry.segment].size;
  ++size_;
}

void Index::CatchUp() {
  if (!behind_) return;
  for (size_t s = 0; s < segments_.size(); ++s) {
    if (segments_[s].size >= segments_[s].num_chunks * 10) Grow(Contents(segments_[s])[0].first);
  }
  behind_ = false;
}

uint32_t Index::Erase(uint64_t hash, int64_t key) {
  const Entry& entry = EntryOf(hash);
  const uint8_t tag = Tag(hash);
  const uint32_t home = HomeOf(hash, entry.num_chunks);
  uint32_t at = home;
  for (uint32_t probes = 0; probes < entry.num_chunks; ++probes) {
    Chunk& chunk = entry.chunks[at];
    for (uint32_t match = Match(chunk, tag); match != 0; match &= match - 1) {
      const int number = __builtin_ctz(match);
      const uint32_t id = chunk.row[number];
      if (KeyOf(id) != key) continue;
      chunk.tag[number] = 0;
      // Decrement the overflow counters of all chunks from the key's home chunk up to, but not
      // including, the chunk with the key's entry. A saturated counter no longer contains the exact
      // number, so the counter does not change.
      for (uint32_t passed = home; passed != at;) {
        if (entry.chunks[passed].overflow != kSaturated) --entry.chunks[passed].overflow;
        if (++passed == entry.num_chunks) passed = 0;
      }
      --segments_[entry.segment].size;
      --size_;
      return id;
    }
    if (chunk.overflow == 0) return kNone;
    if (++at == entry.num_chunks) at = 0;
  }
  return kNone;
}

std::vector<std::pair<uint64_t, uint32_t>> Index::Contents(const Segment& segment) const {
  std::vector<std::pair<uint64_t, uint32_t>> contents;
  contents.reserve(segment.size);
  for (uint32_t c = 0; c < segment.num_chunks; ++c) {
    const Chunk& chunk = segment.chunks[c];
    for (int number = 0; number < kChunkEntries; ++number) {
      if (chunk.tag[number] == 0) continue;
      __builtin_prefetch(rows_->Row(chunk.row[number]));
      contents.emplace_back(0, chunk.row[number]);
    }
  }
  for (auto& [hash, id] : contents) hash = IndexHash(KeyOf(id));
  return contents;
}

// Point all directory entries of a segment to the segment's current chunks. `hash` is the hash of
// any key that belongs to the segment.
void Index::Publish(uint32_t segment, uint64_t hash) {
  const Segment& s = segments_[segment];
  const size_t span = size_t{1} << (depth_ - s.depth);
  const size_t prefix = s.depth == 0 ? 0 : hash >> (64 - s.depth);
  for (size_t i = prefix * span; i < (prefix + 1) * span; ++i) {
    directory_[i] = {s.chunks, s.num_chunks, segment};
  }
}

void Index::Grow(uint64_t hash) {
  const uint32_t segment = EntryOf(hash).segment;
  const Segment& s = segments_[segment];
  // An attacker who knows the secrets of the hash could choose keys whose hashes have the same
  // leading bits. All these keys belong to one segment, and each split of the segment would double
  // the directory. To prevent repeated doubling, a full segment grows and is not split if the
  // directory is already too large for the number of segments.
  const bool directory_is_full = s.depth == depth_ && directory_.size() >= 64 * segments_.size();
  if (s.num_chunks >= kMaxChunks && s.depth < kMaxDepth && !directory_is_full) {
    Split(segment, hash);
    return;
  }
  const uint32_t grown =
      s.num_chunks < kBaseChunks ? s.num_chunks * 2 : s.num_chunks + s.num_chunks / 2;
  Resize(segment, grown);
  Publish(segment, hash);
}

void Index::Resize(uint32_t segment, uint32_t num_chunks) {
  const auto contents = Contents(segments_[segment]);
  Chunk* chunks = NewChunks(num_chunks);
  for (const auto& [hash, id] : contents) Place(chunks, num_chunks, hash, id);
  Segment& s = segments_[segment];
  bytes_ += (num_chunks - s.num_chunks) * sizeof(Chunk);
  entries_ += (num_chunks - s.num_chunks) * size_t{kChunkEntries};
  std::free(s.chunks);
  s.chunks = chunks;
  s.num_chunks = num_chunks;
}

void Index::Split(uint32_t segment, uint64_t hash) {
  // First perform all operations that can fail, before the index changes.
  const auto contents = Contents(segments_[segment]);
  segments_.reserve(segments_.size() + 1 > segments_.capacity() ? 2 * segments_.size() : 0);
  if (segments_[segment].depth == depth_) {
    std::vector<Entry> doubled;
    doubled.reserve(directory_.size() * 2);
    for (const Entry& entry : directory_) doubled.insert(doubled.end(), 2, entry);
    directory_.swap(doubled);
    ++depth_;
    bytes_ += doubled.size() * sizeof(Entry);
  }
  const int depth = segments_[segment].depth + 1;
  const uint64_t bit = uint64_t{1} << (64 - depth);
  uint32_t high_size = 0;
  for (const auto& [h, id] : contents) high_size += (h & bit) != 0;
  const uint32_t low_size = static_cast<uint32_t>(contents.size()) - high_size;
  // After an uneven split, one half may need more than kBaseChunks. If a segment of more than
  // kMaxChunks is split, one half may still need more than kMaxChunks.
  const auto chunks_for = [](uint32_t size) {
    return size < kBaseChunks * 10 ? kBaseChunks : std::max(kMaxChunks, size / 10 + 1);
  };
  const uint32_t low_chunks = chunks_for(low_size);
  const uint32_t high_chunks = chunks_for(high_size);
  Chunk* low = NewChunks(low_chunks);
  Chunk* high = nullptr;
  try {
    high = NewChunks(high_chunks);
  } catch (...) {
    std::free(low);
    throw;
  }
  for (const auto& [h, id] : contents) {
    if ((h & bit) != 0) {
      Place(high, high_chunks, h, id);
    } else {
      Place(low, low_chunks, h, id);
    }
  }
  const Segment old = segments_[segment];
  bytes_ += (low_chunks + high_chunks - old.num_chunks) * sizeof(Chunk) + sizeof(Segment);
  entries_ += (low_chunks + high_chunks - old.num_chunks) * size_t{kChunkEntries};
  std::free(old.chunks);
  segments_[segment] = {low, low_chunks, low_size, depth};
  segments_.push_back({high, high_chunks, high_size, depth});
  Publish(segment, hash & ~bit);
  Publish(static_cast<uint32_t>(segments_.size() - 1), hash | bit);
}

}  // namespace msrec
