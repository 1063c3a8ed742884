// SPDX-License-Identifier: Apache-2.0
//
// UpperTier: a table's rows in host memory, as what is below them (table/cache) sees them: found,
// held, promoted to, demoted from and told what happens below. It hides the core (table_core.h);
// settings and clock are there to be read.
//
// As the core's own parts it runs under the table's mutex, unless a method says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "policy/eviction.h"
#include "rows/batch.h"
#include "table/core/lookup_purpose.h"
#include "table/core/pending_rows.h"
#include "table/core/row_rules.h"
#include "table/core/row_sizes.h"
#include "table/core/shard_context.h"
#include "table/core/table_config.h"
#include "table/core/table_mutex.h"
#include "table/core/victim_candidate.h"

namespace msrec {

struct TableCore;

class UpperTier {
 public:
  // Requires: core outlives it.
  explicit UpperTier(TableCore* core) : core_(*core) {}

  // Return the message with the table's name in front. Without the mutex, too.
  std::string Where(const std::string& what) const;
  const ShardContext& context() const;
  TableMutex* mutex() const;
  // Whether the table was closed.
  bool closed() const;
  // Number of rows in host memory.
  size_t rows() const;

  // ---- find and hold

  // Make a batch unique, fill batch->row with its rows in host memory, and hold these rows. Append
  // to missing[shard] the positions in the batch of the keys without a row here.
  void FindInHost(Batch* batch, Hold hold, std::vector<uint32_t>* missing);
  // The same for a batch that is unique, with one vector `missing` for the keys of all shards; hold
  // the rows for prefetched batch `number`.
  void FindAhead(Batch* batch, uint16_t number, std::vector<uint32_t>* missing);
  // Whether there is a row of key here, due or not.
  bool Holds(int64_t key) const;
  // The same, and hold the row for the prefetched batch of that number.
  bool HoldAhead(int64_t key, uint16_t number);
  // Note that prefetched batches up to that number need their rows no more.
  void ReleaseUpTo(int64_t number);

  // ---- promote

  // Make room for a unique batch, so that promoting its missing rows, inserting rows that are not
  // below either, and noting all of its keys cannot run out of memory. The room is in addition to
  // the room for `pending` (unless null). Throws std::bad_alloc.
  void Reserve(const Batch& batch, const std::vector<uint32_t>* missing,
               const PendingRows* pending);
  // Promote the rows that were found below: the row of keys[i], whose place in the batch is at[i],
  // if found[i]. `rows` has their blocks, one after another; if it is null, they will be
  // overwritten. Adds the number of promoted rows to *promoted. Throws std::bad_alloc; rows
  // promoted until then stay, unless they are to be overwritten. Requires Reserve.
  void Promote(Batch* batch, const std::vector<uint32_t>& at, const std::vector<int64_t>& keys,
               const char* rows, const bool* found, Hold hold, int64_t* promoted);
  // Promote keys[i], whose block is the i-th of `rows`, for each i of `of`, and hold them for the
  // prefetched batch of that number. Adds how many to *promoted; a key that has a row here is
  // passed over. Throws std::bad_alloc, and the rows that were promoted stay.
  void PromoteAhead(const std::vector<int64_t>& keys, const std::vector<char>& rows,
                    const std::vector<size_t>& of, uint16_t number, int64_t* promoted);

  // ---- demote

  // Choose about that many rows to demote: the rows of the lowest priority in a sample, without
  // rows that the step or call holds, and, unless `prefetched`, without rows that prefetched
  // batches hold. Sorted by shard and place.
  VictimCandidates Victims(size_t rows, bool by_count, bool prefetched);
  // Append a copy of a victim, with what a device cache has of it.
  void CopyOut(const VictimCandidate& victim, std::vector<int64_t>* keys, std::vector<char>* rows);
  // Free the place of a victim that is in a lower tier now.
  void Free(const VictimCandidate& victim) noexcept;
  // Call write(keys, rows) with copies of all rows, about `most` at a time, and note that they are
  // in a lower tier too.
  void CopyAll(size_t most,
               const std::function<void(std::vector<int64_t>, std::vector<char>)>& write);

  // ---- copies that are below as well

  // Return the keys whose copies below are to be erased since the row left, each once and sorted.
  std::vector<int64_t> Departed() const;
  // Note that this was done.
  void ForgetDeparted() noexcept;
  // Note that no row has a copy below any more.
  void ForgetCopies() noexcept;

  // ---- rows that leave below

  // Make room for noting the eviction of these keys. Throws std::bad_alloc.
  void ReserveEvictions(const std::vector<int64_t>& keys);
  // Count and remember that a row below, which is in that block, was evicted.
  void NoteEvicted(const char* block, EvictionReason reason);
  // Whether changes are recorded.
  bool recording() const;
  // Make room for noting the rows here, these keys below, and a vocabulary as deleted. Throws
  // std::bad_alloc.
  void ReserveDeleted(const std::vector<int64_t>& keys);
  // Note that these keys below, and the keys of a vocabulary that were never looked up, have other
  // rows or none now.
  void NoteDeleted(const std::vector<int64_t>& keys) noexcept;

  // Whether the digest of all rows is kept (shard_digests.h), and rows that are replaced must be
  // read for it.
  bool KeepsDigest() const;
  void DropDigest() noexcept;

 private:
  TableCore& core_;
};

}  // namespace msrec
