// SPDX-License-Identifier: Apache-2.0
//
// CountingSketch: approximate counts of very many keys in memory of a fixed size. The sketch is a
// counting Bloom filter (Fan et al., "Summary cache", 2000). The four counters of a key are in one
// cache line (Putze et al., "Cache-, hash- and space-efficient Bloom filters", 2007).
//
// The estimate of a key is the smallest of its four counters. Keys share counters, so an estimate
// may be higher than the key's own count. To remove a key, the sketch subtracts the key's estimate
// from the key's counters. Removing a key may also reduce the estimates of other keys. Each new
// epoch halves all counts. When an epoch begins, a block's counts are halved only at the next
// access to the block, so the epoch causes no pause. Not thread safe; each object belongs to one
// shard.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "util/hash.h"

namespace msrec {

class CountingSketch {
 public:
  static constexpr uint32_t kMaxCount = 0xffff;  // the maximum of the widest counters

  // Allocates `bytes` bytes, rounded down to whole blocks of 64 bytes, but at least one block. If
  // `bytes` is 0, no memory is allocated, and the sketch must not be used. A counter has
  // counter_bits (4, 8 or 16) bits.
  explicit CountingSketch(size_t bytes, int counter_bits = 16)
      : bits_(counter_bits),
        group_(kBlockBits / counter_bits / kHashes),
        blocks_(bytes == 0 ? 0 : std::max<size_t>(bytes / sizeof(Block), 1)) {}

  static int64_t MaxCount(int counter_bits) { return (int64_t{1} << counter_bits) - 1; }

  uint32_t Estimate(uint64_t hash, uint32_t epoch) {
    Place at = Find(hash, epoch);
    uint32_t least = max_count();
    for (const uint32_t c : at.counter) least = std::min(least, Get(*at.block, c));
    return least;
  }
  // Add n to the counters of a key. A counter stops at its maximum.
  void Add(uint64_t hash, uint32_t epoch, uint32_t n) {
    Place at = Find(hash, epoch);
    for (const uint32_t c : at.counter) {
      const uint32_t count = Get(*at.block, c);
      Set(at.block, c, count + std::min(n, max_count() - count));
    }
  }
  void Subtract(uint64_t hash, uint32_t epoch, uint32_t n) {
    Place at = Find(hash, epoch);
    for (const uint32_t c : at.counter) {
      const uint32_t count = Get(*at.block, c);
      Set(at.block, c, count - std::min(n, count));
    }
  }
  void Clear() { std::fill(blocks_.begin(), blocks_.end(), Block{}); }

  uint32_t max_count() const { return static_cast<uint32_t>(MaxCount(bits_)); }
  // Halve the counters once for each epoch up to `epoch`, and write the counters to the memory at
  // `to`. The memory at `to` must have at least `bytes()` bytes. Load() reads saved counters into a
  // sketch of the same size, and sets the counters' epoch to `epoch`.
  void Save(uint32_t epoch, char* to) {
    for (Block& block : blocks_) {
      if (block.epoch != epoch) Age(&block, epoch);
      Block saved = block;
      saved.epoch = 0;
      std::memcpy(to, &saved, sizeof(Block));
      to += sizeof(Block);
    }
  }
  void Load(uint32_t epoch, const char* from) {
    for (Block& block : blocks_) {
      std::memcpy(&block, from, sizeof(Block));
      block.epoch = epoch;
      from += sizeof(Block);
    }
  }
  size_t bytes() const { return blocks_.size() * sizeof(Block); }

 private:
  static constexpr int kHashes = 4;
  static constexpr int kBlockBits = 480;  // bits of a block's counters

  struct alignas(64) Block {
    uint32_t epoch;
    uint32_t word[kBlockBits / 32];
  };
  static_assert(sizeof(Block) == 64, "a block is one cache line");

  struct Place {
    Block* block;
    uint32_t counter[kHashes];
  };

  Place Find(uint64_t hash, uint32_t epoch) {
    const uint64_t mixed = Mix64(hash ^ 0x9e3779b97f4a7c15ULL);
    Place at{};
    at.block = &blocks_[((mixed >> 32) * blocks_.size()) >> 32];
    if (at.block->epoch != epoch) Age(at.block, epoch);
    for (int i = 0; i < kHashes; ++i) {
      const auto some = static_cast<uint32_t>(mixed >> (8 * i)) & 0xff;
      at.counter[i] = static_cast<uint32_t>(i * group_) + ((some * group_) >> 8);
    }
    return at;
  }
  uint32_t Get(const Block& block, uint32_t counter) const {
    const uint32_t bit = counter * bits_;
    return (block.word[bit / 32] >> (bit % 32)) & max_count();
  }
  void Set(Block* block, uint32_t counter, uint32_t count) const {
    const uint32_t bit = counter * bits_;
    uint32_t& word = block->word[bit / 32];
    word = (word & ~(max_count() << (bit % 32))) | count << (bit % 32);
  }
  void Age(Block* block, uint32_t epoch) const {
    const uint32_t halvings = std::min(epoch - block->epoch, 16u);
    for (uint32_t c = 0; halvings > 0 && c < static_cast<uint32_t>(kHashes * group_); ++c) {
      Set(block, c, Get(*block, c) >> halvings);
    }
    block->epoch = epoch;
  }

  const int bits_;
  const int group_;  // number of counters from which one hash chooses
  std::vector<Block> blocks_;
};

}  // namespace msrec
