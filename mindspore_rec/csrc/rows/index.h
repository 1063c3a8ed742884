// SPDX-License-Identifier: Apache-2.0
//
// Index: a hash table from an int64 key to a 32-bit row id, with open addressing in chunks of one
// cache line. A chunk has 12 row ids and one control byte (8 bits of the hash) per id. A lookup
// compares the 12 control bytes of a chunk with one instruction. Usually a lookup reads only one
// cache line of the index. The index does not store keys; each row contains its key.
//
// The index grows in steps. A directory points to segments, which usually have at most kMaxChunks
// chunks. A full segment doubles, grows by half or splits in two, so a single insert rehashes at
// most about a thousand rows. A segment has more than kMaxChunks chunks only if unusually many
// hashes have the same leading bits. The layout of chunks is from F14 (Bronson and Shi 2019), and
// the directory is from extendible hashing (Fagin et al. 1979).
//
// The index takes 64 / (12 * load) bytes per row. If no rows are erased, the load is between 0.55
// and 0.83, so a row takes 6.4 to 9.7 bytes. The load may be lower in an index with fewer than 640
// rows. Not thread safe; each object belongs to one shard. The argument `hash` is IndexHash(key).
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

  // Return the row id of a key, or kNone if the key is absent.
  uint32_t Find(uint64_t hash, int64_t key) const;

  // Add key -> id. Requires: key is absent, and the row's metadata already contains the key. Throws
  // std::bad_alloc only if memory is short and the segment has no free entry; the index is then
  // unchanged.
  void Insert(uint64_t hash, uint32_t id);

  // Grow the segments that could not grow earlier because memory was short. If a segment could not
  // grow, the segment has space for only a few further entries. Throws std::bad_alloc.
  void CatchUp();

  // Remove key and return its row id, or kNone if key was absent.
  uint32_t Erase(uint64_t hash, int64_t key);

  // The first stage of a batched lookup: begin to load the first chunk for the key.
  const void* Prefetch(uint64_t hash) const {
    const Chunk* chunk = HomeChunk(hash);
    __builtin_prefetch(chunk);
    return chunk;
  }
  // Return the address of the first chunk for a key, without loading the chunk.
  const void* HomeOfHash(uint64_t hash) const { return HomeChunk(hash); }
  // The second stage of a lookup: return the row id of the chunk's first entry whose control byte
  // matches the hash. Usually, the row with the returned id is the key's row. Return kNone if no
  // control byte matches; the key may still be in a later chunk. The caller must check the key in
  // the row, or call Find.
  static uint32_t Candidate(const void* home_chunk, uint64_t hash);

  size_t size() const { return size_; }
  size_t bytes() const { return bytes_; }
  // Number of entries that fit into the allocated memory.
  size_t entries() const { return entries_; }
  // Return the number of chunks that Find reads for a key.
  uint32_t Probes(uint64_t hash, int64_t key) const;

 private:
  static constexpr int kChunkEntries = 12;
  static constexpr uint32_t kBaseChunks = 64;
  static constexpr uint32_t kMaxChunks = 96;

  struct alignas(64) Chunk {
    uint8_t tag[kChunkEntries];  // 0: free
    uint8_t overflow;  // number of keys whose home is here or earlier and whose entry is later;
                       // saturates
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

  // A directory entry. The entry repeats the fields of the Segment that a lookup needs, so that a
  // lookup need not read the Segment.
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
  bool behind_ = false;  // true if a segment could not grow
  std::vector<Entry> directory_;
  std::vector<Segment> segments_;
};

}  // namespace msrec
