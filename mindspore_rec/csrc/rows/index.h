// SPDX-License-Identifier: Apache-2.0
//
// Index: int64 key -> 32-bit row id, open addressing in chunks of one cache line. A chunk holds 12
// row ids and one control byte (8 bits of the hash) for each, so a lookup compares 12 candidates
// with one instruction and, in the common case, reads one line before it reads the row. Keys live
// in the rows.
//
// The index grows in steps: it is a directory of segments of at most kMaxChunks chunks; a full
// segment grows by half or splits in two, so no single insert ever rehashes more than about a
// thousand rows. (Chunk layout after F14, Bronson and Shi 2019; directory after extendible hashing,
// Fagin et al. 1979.)
//
// Memory: 64 / (12 * load) bytes a row with load between 0.55 and 0.83: 6.4 to 9.7 bytes.
// Not thread safe; one shard owns it. The caller passes IndexHash(key) with every key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rows/slab_store.h"

namespace msrec {

class Index {
 public:
  static constexpr uint32_t kNone = 0xffffffffu;

  // Requires: rows outlives the index.
  explicit Index(const SlabStore* rows);
  ~Index();
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  // Return the row id of key, or kNone.
  uint32_t Find(uint64_t hash, int64_t key) const;

  // Add key -> id. Requires: key is absent, and the row's metadata already holds the key. Throws
  // std::bad_alloc only when memory is out and not even the space at hand suffices; the index is
  // then as it was.
  void Insert(uint64_t hash, uint32_t id);

  // Let segments grow that could not when they should have; they get by for a few inserts. Throws
  // std::bad_alloc.
  void CatchUp();

  // Remove key and return its row id, or kNone when it was absent.
  uint32_t Erase(uint64_t hash, int64_t key);

  // First stage of a batched lookup: starts loading the chunk where key would be.
  const void* Prefetch(uint64_t hash) const {
    const Chunk* chunk = HomeChunk(hash);
    __builtin_prefetch(chunk);
    return chunk;
  }
  // Return the same chunk without loading it.
  const void* HomeOfHash(uint64_t hash) const { return HomeChunk(hash); }
  // Second stage: a row id that is probably key's (its control byte matches), or kNone when key is
  // probably absent or not in its first chunk. To be confirmed by looking at the row, or by Find.
  static uint32_t Candidate(const void* home_chunk, uint64_t hash);

  size_t size() const { return size_; }
  size_t bytes() const { return bytes_; }
  // Number of entries that there is memory for.
  size_t entries() const { return entries_; }
  // Return the number of chunks that Find looks at for key.
  uint32_t Probes(uint64_t hash, int64_t key) const;

 private:
  static constexpr int kChunkEntries = 12;
  static constexpr uint32_t kBaseChunks = 64;
  static constexpr uint32_t kMaxChunks = 96;

  struct alignas(64) Chunk {
    uint8_t tag[kChunkEntries];  // 0: free
    uint8_t overflow;  // keys whose home is here or earlier and that live further on; saturating
    uint8_t padding[3];
    uint32_t row[kChunkEntries];
  };
  static_assert(sizeof(Chunk) == 64, "a chunk is one cache line");

  struct Segment {
    Chunk* chunks;
    uint32_t num_chunks;
    uint32_t size;
    int depth;  // directory bits that all keys of this segment share
  };

  // An entry of the directory: enough to reach the chunk without touching the segment's own record.
  struct Entry {
    Chunk* chunks;
    uint32_t num_chunks;
    uint32_t segment;
  };

  static uint8_t Tag(uint64_t hash) {
    const auto tag = static_cast<uint8_t>(hash);
    return tag == 0 ? 1 : tag;
  }
  static uint32_t HomeOf(uint64_t hash, uint32_t num_chunks) {
    return static_cast<uint32_t>(((hash & 0xffffffffu) * num_chunks) >> 32);
  }
  static uint32_t Match(const Chunk& chunk, uint8_t tag);
  static void Place(Chunk* chunks, uint32_t num_chunks, uint64_t hash, uint32_t id);
  static Chunk* NewChunks(uint32_t num_chunks);

  const Entry& EntryOf(uint64_t hash) const {
    return directory_[depth_ == 0 ? 0 : hash >> (64 - depth_)];
  }
  const Chunk* HomeChunk(uint64_t hash) const {
    const Entry& entry = EntryOf(hash);
    return entry.chunks + HomeOf(hash, entry.num_chunks);
  }
  int64_t KeyOf(uint32_t id) const;

  void Grow(uint64_t hash);
  void Resize(uint32_t segment, uint32_t num_chunks);
  void Split(uint32_t segment, uint64_t hash);
  void Publish(uint32_t segment, uint64_t hash);
  std::vector<std::pair<uint64_t, uint32_t>> Contents(const Segment& segment) const;

  const SlabStore* rows_;
  int depth_ = 0;
  size_t size_ = 0;
  size_t entries_ = 0;
  size_t bytes_ = 0;
  bool behind_ = false;  // a segment could not grow
  std::vector<Entry> directory_;
  std::vector<Segment> segments_;
};

}  // namespace msrec
