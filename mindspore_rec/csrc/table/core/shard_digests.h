// SPDX-License-Identifier: Apache-2.0
//
// ShardDigests: the digests (row_digest.h) of a shard's rows. For each row in host memory, the
// class stores a digest of 8 bytes. The class also stores the sum of the digests of all rows in the
// shard, including rows in lower tiers. The stored digest of a row is the digest at the beginning
// of the current epoch or at the last export, whichever is later. When a row changes, the shard
// does not hash the row. The shard hashes a changed row when the row is exported or demoted, or
// when the next epoch begins. For a row in a lower tier, the sum includes the digest that the row
// had when it was demoted. If a key of a vocabulary has no row yet (has_unseen), the sum includes
// the digest of the key's first row. For a row that is not in host memory, the class stores no
// separate digest. If memory runs out, all digests are dropped and the call continues.
//
// A ShardDigests object is a part of a shard, and uses the places of the shard's rows. Other
// classes call only Keep, Drop, kept and DamagedRows.
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
  // Keeps digests of shard `number`. Requires: `context` and `rows` outlive the object.
  ShardDigests(const ShardContext* context, const SlabStore* rows, int number)
      : context_(*context), rows_(*rows), number_(number) {}

  // Begin to store digests. `elsewhere` contains the sums of the digests of all rows outside host
  // memory. Requires: changes are recorded, and the rows of a device cache have been written back.
  // May throw std::bad_alloc; the object then keeps no digests.
  void Keep(DigestSums elsewhere);
  void Drop() noexcept;
  bool kept() const { return kept_; }
  // Append the keys of damaged rows. A row is damaged if its digest differs from the stored digest,
  // although no call has touched the row in the current epoch. The places of the rows are divided
  // into `parts` parts; one call checks one part. Requires Keep.
  void DamagedRows(uint32_t part, uint32_t parts, std::vector<int64_t>* keys) const;
  size_t bytes() const { return digests_.capacity() * sizeof(uint64_t) + sums_.bytes(); }

  // ---- methods that only the shard calls

  // True if all digests are up to date: no row has been touched since the digests were computed.
  bool fresh() const { return fresh_; }
  void SetFresh(bool fresh) { fresh_ = fresh; }
  // True if the sums already include the digest of a row that is put into host memory.
  bool ComesDigested() const { return kept_ && (context_.tiered || context_.has_unseen()); }
  bool HasRoom(size_t places) const { return digests_.size() >= places; }
  // Enlarge the arrays to `places` places.
  void Grow(size_t places) noexcept;
  // Prefetch the memory of place `id`, which Take will access.
  void Prefetch(uint32_t id) const {
    __builtin_prefetch(digests_.data() + id, 1);
    sums_.Prefetch(id);
  }
  // Replace the stored digest of a row by the row's present digest.
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
  // Subtract the digest of a row in a lower tier; `block` contains the bytes of the row.
  void RemoveBelow(const char* block) noexcept;
  // Store the digest of a new row in place `id`. The sums must already include this digest.
  void Place(uint32_t id) noexcept;
  // Prepare the demotion of a row; the digest of the row stays in the sums.
  void Leave(uint32_t id) noexcept;
  // Return the sum of the digests of all rows that are not due for eviction.
  uint64_t Sum() const;
  // Forget all rows.
  void Clear() noexcept;

 private:
  void TakeAged(uint32_t id, uint64_t digest) noexcept;  // requires sums_.by_age()
  uint64_t DigestOf(const char* row) const;
  // Return the digest of the first row of a key in the vocabulary.
  uint64_t FirstDigest(int64_t key) noexcept;

  const ShardContext& context_;
  const SlabStore& rows_;
  const int number_;
  bool kept_ = false;
  bool fresh_ = false;
  std::vector<uint64_t> digests_;  // indexed by place; 0 if there was no row
  DigestSums sums_;                // include all rows, in host memory or not
  std::vector<char> first_;        // buffer of FirstDigest
};

}  // namespace msrec
