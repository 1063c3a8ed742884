// SPDX-License-Identifier: Apache-2.0
//
// Batch: the ids of one lookup, partitioned by shard and made unique. First stage of every batched
// operation (unique | fetch rows | expand); kept from a training lookup to its gradient, so that
// the backward pass does not hash again.
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

// Few and large: the positions of a shard are spread over the whole batch, so each shard touches
// every page of the lookup's output and of its gradient once.
constexpr int kShardBits = 4;
constexpr int kNumShards = 1 << kShardBits;

// Return the shard that a key lives in. With an identity index the key itself is spread, so that a
// shard's rows are dense.
inline int ShardOf(int64_t key, uint64_t hash, bool identity) {
  return static_cast<int>(identity ? static_cast<uint64_t>(key) & (kNumShards - 1)
                                   : hash >> (64 - kShardBits));
}

// A borrowed array of ids as the caller has them: one in `stride` elements.
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

// The ids of a batch that are not looked up: they read zeros and are never trained.
struct IdFilter {
  int64_t vocabulary = 0;  // > 0: ids outside [0, vocabulary) are dropped
  bool identity = false;   // keys are their own index
  bool has_padding = false;
  int64_t padding_key = 0;   // dropped where has_padding
  uint32_t coefficient = 1;  // weight of an occurrence in a key's count
  // Number of occurrences that each id stands for; null: 1. The batch borrows it until its keys
  // are made distinct.
  const uint32_t* counts = nullptr;

  bool bounded() const { return vocabulary > 0; }
  bool Inside(int64_t key) const { return key >= 0 && key < vocabulary; }
  // Whether a key reads zeros, and gets no row.
  bool Drops(int64_t key) const {
    return (has_padding && key == padding_key) || (bounded() && !Inside(key));
  }
};

// Throw std::invalid_argument, which names the table, unless a batch has places for so many ids.
void CheckBatchSize(const IdView& ids, const std::string& table);

// Zero the rows that a lookup of n ids of that stride gives out.
void ZeroRows(const RowsOut& out, size_t n, size_t stride, size_t dim);

struct Batch {
  int64_t ticket = 0;
  size_t n = 0;
  size_t stride = 1;  // of the caller's ids, of the rows given out and of their gradient
  uint32_t coefficient = 1;
  const uint32_t* counts = nullptr;  // by position, as IdFilter has it
  bool made_unique = false;          // all shards' keys are distinct already
  bool on_device = false;            // rows are read from the device cache
  uint64_t structure = 0;            // the table's structure version when `row` was filled

  // Shard s holds positions [begin[s], begin[s + 1]) of the arrays below.
  size_t begin[kNumShards + 1] = {};
  uint32_t unique[kNumShards] = {};  // distinct keys of the shard

  // The caller's position of each id, a multiple of stride, ascending within a shard.
  Buffer<uint32_t> pos;
  Buffer<uint32_t> inverse;  // which of the shard's distinct keys it is
  // One entry a distinct key, at begin[s] + number; the rest of a shard's range is unused.
  Buffer<int64_t> key;
  Buffer<uint32_t> occurrences;
  Buffer<char*> row;  // null: reads the unknown value and is not trained

  // Return the number of occurrences that the distinct key at i counts for.
  uint32_t Occurrences(size_t i) const {
    return static_cast<uint32_t>(
        std::min<uint64_t>(uint64_t{occurrences[i]} * coefficient, 0xffffffffu));
  }

  bool probed = false;      // whether `row` holds the index's answers
  Buffer<int64_t> handles;  // of distinct keys, two each; only of lookups by handle
  // Copies of rows in lower tiers, which evaluation reads without promoting them.
  Buffer<char> copies;

  // Of a pooled lookup: position -> output row and weight of its gradient. Else unused.
  bool pooled = false;
  size_t grad_rows = 0;  // rows of the gradient: n, or the number of bags
  Buffer<uint32_t> bag;
  Buffer<float> weight;

  // Fill begin, pos and, not yet distinct, key. Requires ids.size * ids.stride < 2^32. Ids that
  // the filter drops appear nowhere; their number is n - begin[kNumShards].
  void Partition(const IdView& ids, const IdFilter& filter);

  // Make the keys of one shard distinct. Any thread, one at a time for each shard.
  void MakeUnique(int shard);

  // Sum the occurrences of a shard's distinct keys by `counts`.
  void CountOccurrences(int shard);

  size_t bytes() const {
    return pos.bytes() + inverse.bytes() + key.bytes() + occurrences.bytes() + row.bytes() +
           bag.bytes() + weight.bytes();
  }
};

}  // namespace msrec
