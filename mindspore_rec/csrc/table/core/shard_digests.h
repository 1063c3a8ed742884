// SPDX-License-Identifier: Apache-2.0
//
// ShardDigests: the digests (row_digest.h) of a shard's rows. The class keeps 8 bytes for each row
// in host memory, and the sum over all rows of the shard, in memory and in tiers. A digest is of
// the row at the begin of the current epoch, or at a later export. A change of a row costs nothing:
// the shard hashes the row when the row is exported or demoted, or when the next epoch begins. A
// row in a lower tier counts as it was when it was demoted, and a key without a place (has_unseen)
// counts as its first row; no digest is kept for these. If memory runs out, all digests are dropped
// and the call continues.
//
// The object is a part of a shard, and uses the places of the shard's rows. Other classes call only
// Keep, Drop, kept and DamagedRows.
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

  // Begin to keep digests. `elsewhere` has the sums of rows that are not in host memory. Requires:
  // changes are recorded, and a device cache has written its rows back. Throws std::bad_alloc, and
  // then keeps no digests.
  void Keep(DigestSums elsewhere);
  void Drop() noexcept;
  bool kept() const { return kept_; }
  // Append the keys of rows whose digest differs from the kept digest, though no call has touched
  // them in the current epoch: their memory has changed by itself. Looks at one of `parts` parts of
  // the places. Requires Keep.
  void DamagedRows(uint32_t part, uint32_t parts, std::vector<int64_t>* keys) const;
  size_t bytes() const { return digests_.capacity() * sizeof(uint64_t) + sums_.bytes(); }

  // ---- by the shard

  // All digests are up to date: no row has been touched since they were computed.
  bool fresh() const { return fresh_; }
  void SetFresh(bool fresh) { fresh_ = fresh; }
  // True if the digest of a row that comes into host memory is in the sum already.
  bool ComesDigested() const { return kept_ && (context_.tiered || context_.has_unseen()); }
  bool HasRoom(size_t places) const { return digests_.size() >= places; }
  // Make room for so many places.
  void Grow(size_t places) noexcept;
  // Prefetch the memory that Take changes for a place.
  void Prefetch(uint32_t id) const {
    __builtin_prefetch(digests_.data() + id, 1);
    sums_.Prefetch(id);
  }
  // Replace the kept digest of a row by its present digest.
  void Take(uint32_t id, uint64_t digest) noexcept {
    if (!kept_) return;
    if (sums_.by_age()) {
      TakeAged(id, digest);
      return;
    }
    sums_.Replace(digests_[id], digest);
    digests_[id] = digest;
  }
  // Subtract the digest of a row that is about to be dropped.
  void Remove(uint32_t id) noexcept;
  // Do the same for a row in a lower tier, whose bytes are in `block`.
  void RemoveBelow(const char* block) noexcept;
  // Note the digest of a row that has come into a place and is in the sums already.
  void Place(uint32_t id) noexcept;
  // Keep the digest of a row in the sums; the row is about to be demoted.
  void Leave(uint32_t id) noexcept;
  // Return the sum over the rows that are not due.
  uint64_t Sum() const;
  // Forget all rows.
  void Clear() noexcept;

 private:
  void TakeAged(uint32_t id, uint64_t digest) noexcept;  // requires sums_.by_age()
  uint64_t DigestOf(const char* row) const;
  // Return the digest of the first row of a key of the vocabulary.
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
