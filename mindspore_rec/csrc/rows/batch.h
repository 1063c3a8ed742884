// SPDX-License-Identifier: Apache-2.0
//
// Batch: the ids of one lookup, partitioned by shard and made unique. Every operation on a batch of
// ids first makes a Batch. The Batch of a training lookup is stored for the gradient, so that the
// backward pass need not hash the ids again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rows/row_numbers.h"
#include "util/buffer.h"
#include "util/hash.h"
#include "util/key_set.h"

namespace msrec {

// A table has only a few shards. The positions of a shard are spread over the whole batch, so work
// on each shard accesses nearly all pages of the lookup's output and gradient. With more shards,
// each page of the output and of the gradient would be accessed by more shards.
constexpr int kShardBits = 4;
constexpr int kNumShards = 1 << kShardBits;

// Return the shard of a key. With an identity index, the low bits of the key select the shard, so
// that there are no gaps between the rows of a shard.
inline int ShardOf(int64_t key, uint64_t hash, bool identity) {
  return static_cast<int>(identity ? static_cast<uint64_t>(key) & (kNumShards - 1)
                                   : hash >> (64 - kShardBits));
}

// A view of the caller's array of ids, in which every `stride`-th element is an id.
struct IdView {
  const void* data = nullptr;
  size_t size = 0;
  bool is_int64 = true;
  size_t stride = 1;

  int64_t operator[](size_t i) const {
    const size_t at = i * stride;
    return is_int64 ? static_cast<const int64_t*>(data)[at] : static_cast<const int32_t*>(data)[at];
  }
};

inline IdView ViewOf(const std::vector<int64_t>& ids) { return {ids.data(), ids.size(), true}; }

// Return a hash of the ids. The hash does not depend on the ids' integer type and stride.
uint64_t HashIds(const IdView& ids);

// Selects the ids that a lookup drops. For a dropped id, the output is zeros, and no row is
// trained.
struct IdFilter {
  int64_t vocabulary = 0;  // > 0: ids outside [0, vocabulary) are dropped
  bool identity = false;   // true if the keys themselves are the index
  bool has_padding = false;
  int64_t padding_key = 0;   // ids with this key are dropped if has_padding is true
  uint32_t coefficient = 1;  // weight of one occurrence in a key's count
  // Number of occurrences of each id, or null if every id counts as one occurrence. The array must
  // stay valid until the batch's keys are made distinct.
  const uint32_t* counts = nullptr;

  bool bounded() const { return vocabulary > 0; }
  bool Inside(int64_t key) const { return key >= 0 && key < vocabulary; }
  // Return whether the filter drops a key.
  bool Drops(int64_t key) const {
    return (has_padding && key == padding_key) || (bounded() && !Inside(key));
  }
};

// Throw std::invalid_argument, with the table's name, if there are too many ids for a batch.
void CheckBatchSize(const IdView& ids, const std::string& table);

// Set the output rows of a lookup to zeros, for n ids with stride `stride`.
void ZeroRows(const RowsOut& out, size_t n, size_t stride, size_t dim);

struct Batch {
  int64_t ticket = 0;
  size_t n = 0;
  size_t stride = 1;  // distance between ids, output rows and gradient rows
  uint32_t coefficient = 1;
  const uint32_t* counts = nullptr;  // by position, as in IdFilter
  bool made_unique = false;          // true if the keys of all shards are distinct
  bool on_device = false;            // true if the lookup reads rows from the device cache
  uint64_t structure = 0;            // the table's version (Structure) when `row` was filled

  // Shard s has the range [begin[s], begin[s + 1]) of the arrays below.
  size_t begin[kNumShards + 1] = {};
  uint32_t unique[kNumShards] = {};  // number of distinct keys of each shard

  // Position of each id in the caller's array. Positions are multiples of `stride`, and ascend
  // within a shard.
  Buffer<uint32_t> pos;
  Buffer<uint32_t> inverse;  // index of the id's key among the shard's distinct keys
  // The arrays below have one entry per distinct key. The entry of the i-th key of shard s is at
  // begin[s] + i. The rest of the shard's range is unused.
  Buffer<int64_t> key;
  Buffer<uint32_t> occurrences;
  Buffer<char*> row;  // null: the key reads the value for unknown keys and is not trained

  // Return the number of occurrences of distinct key i, multiplied by `coefficient`.
  uint32_t Occurrences(size_t i) const {
    return static_cast<uint32_t>(
        std::min<uint64_t>(uint64_t{occurrences[i]} * coefficient, 0xffffffffu));
  }

  bool probed = false;      // true if `row` contains the results of the index
  Buffer<int64_t> handles;  // two numbers per distinct key; only for lookups by handle
  // Copies of rows from lower tiers, and first values of keys that were never trained. Evaluation
  // reads these copies, and does not promote rows.
  Buffer<char> copies;

  // For a pooled lookup, `bag` and `weight` contain, for each position, the index of the bag and
  // the weight of the gradient. In a lookup without pooling, `bag` and `weight` are unused.
  bool pooled = false;
  size_t grad_rows = 0;  // rows of the gradient: n, or the number of bags
  Buffer<uint32_t> bag;
  Buffer<float> weight;

  // Fill the members `begin`, `pos` and `key`. Partition does not remove repeated keys. Requires
  // ids.size * ids.stride < 2^32. Ids that the filter drops are left out; the number of dropped ids
  // is n - begin[kNumShards].
  void Partition(const IdView& ids, const IdFilter& filter);

  // Make the keys of one shard distinct. Several threads may call MakeUnique at the same time for
  // different shards.
  void MakeUnique(int shard);

  // Sum the `counts` of each distinct key of a shard.
  void CountOccurrences(int shard);

  size_t bytes() const {
    return pos.bytes() + inverse.bytes() + key.bytes() + occurrences.bytes() + row.bytes() +
           bag.bytes() + weight.bytes();
  }
};

}  // namespace msrec
