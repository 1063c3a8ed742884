// SPDX-License-Identifier: Apache-2.0
//
// ShardDigests: the digests (row_digest.h) that a shard keeps of its rows: one of each row in host
// memory, 8 bytes, and the sum over all rows of the shard, wherever they are: as each was when the
// current epoch began, or was exported since. A row that changes costs nothing until it is
// exported, demoted, or the next epoch begins, when the shard hashes it. A row in a lower tier
// counts as it was when it was demoted, a key without a place (has_unseen) as its first row;
// nothing is kept of either. Where memory runs out, the digests are dropped and the call goes on.
//
// A part of a shard, by the places of its rows. Others than the shard call Keep, Drop, kept and
// DamagedRows only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rows/slab_store.h"
#include "table/core/digest_sums.h"
#include "table/core/shard_context.h"

namespace msrec {

class ShardDigests {
 public:
  // Of shard number `number`. Requires: both outlive it.
  ShardDigests(const ShardContext* context, const SlabStore* rows, int number)
      : context_(*context), rows_(*rows), number_(number) {}

  // Keep them from now on. `elsewhere` has the sums of rows that are not in host memory. Requires:
  // changes are recorded; what a device cache has is written back. Throws std::bad_alloc, and keeps
  // none then.
  void Keep(DigestSums elsewhere);
  void Drop() noexcept;
  bool kept() const { return kept_; }
  // Append the keys of rows that have another digest than is kept of them, though nothing has
  // touched them in the current epoch: their memory has changed by itself. Looks at one of `parts`
  // parts of the places. Requires Keep.
  void DamagedRows(uint32_t part, uint32_t parts, std::vector<int64_t>* keys) const;
  size_t bytes() const { return digests_.capacity() * sizeof(uint64_t) + sums_.bytes(); }

  // ---- by the shard

  // Nothing was touched since all that had been was brought up to date.
  bool fresh() const { return fresh_; }
  void SetFresh(bool fresh) { fresh_ = fresh; }
  // Whether a row that comes into host memory has a digest that is in the sum already.
  bool ComesDigested() const { return kept_ && (context_.tiered || context_.has_unseen()); }
  bool HasRoom(size_t places) const { return digests_.size() >= places; }
  // Make room for that many places.
  void Grow(size_t places) noexcept;
  // Load what Take will change of that place.
  void Prefetch(uint32_t id) const {
    __builtin_prefetch(digests_.data() + id, 1);
    sums_.Prefetch(id);
  }
  // Replace what is kept of a row by its digest now.
  void Take(uint32_t id, uint64_t digest) noexcept {
    if (!kept_) return;
    if (sums_.by_age()) {
      TakeAged(id, digest);
      return;
    }
    sums_.Replace(digests_[id], digest);
    digests_[id] = digest;
  }
  // Take a row that is about to be dropped out of the digest.
  void Remove(uint32_t id) noexcept;
  // The same for a row in a lower tier, which is in that block.
  void RemoveBelow(const char* block) noexcept;
  // Note the digest of a row that has come to its place and is in the sums already.
  void Place(uint32_t id) noexcept;
  // Leave a row that is about to be demoted in the sums.
  void Leave(uint32_t id) noexcept;
  // Return the sum over the rows that are not due.
  uint64_t Sum() const;
  // Forget all rows.
  void Clear() noexcept;

 private:
  void TakeAged(uint32_t id, uint64_t digest) noexcept;  // requires sums_.by_age()
  uint64_t DigestOf(const char* row) const;
  // Return the digest of the row that a key of the vocabulary has at first.
  uint64_t FirstDigest(int64_t key) noexcept;

  const ShardContext& context_;
  const SlabStore& rows_;
  const int number_;
  bool kept_ = false;
  bool fresh_ = false;
  std::vector<uint64_t> digests_;  // by place; 0: there was no row
  DigestSums sums_;                // of all rows, those that are not in host memory among them
  std::vector<char> first_;        // what FirstDigest fills
};

}  // namespace msrec
