// SPDX-License-Identifier: Apache-2.0
//
// UpperTier: the interface through which the code of lower tiers (table/cache) uses a table's rows
// in host memory. The code of lower tiers finds, holds, promotes and demotes rows through
// UpperTier, and reports changes in lower tiers to UpperTier. UpperTier hides the core
// (table_core.h), except the settings and the clock.
//
// The caller must hold the table's mutex, unless a method's comment states an exception.
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
  // Requires: core outlives this object.
  explicit UpperTier(TableCore* core) : core_(*core) {}

  // Return the message with the table's name prepended. The method Where may be called without the
  // mutex.
  std::string Where(const std::string& what) const;
  const ShardContext& context() const;
  TableMutex* mutex() const;
  // Whether the table was closed.
  bool closed() const;
  // Number of rows in host memory.
  size_t rows() const;

  // ---- find and hold

  // Make the batch's keys unique, fill batch->row with the keys' rows in host memory, and pin these
  // rows. Append to missing[shard] the batch positions of the keys that have no row in host memory.
  void FindInHost(Batch* batch, Hold hold, std::vector<uint32_t>* missing);
  // Do the same as FindInHost for a batch whose keys are already unique. Here, `missing` is one
  // vector for the keys of all shards; in FindInHost, each shard has a vector. Hold the rows for
  // the prefetched batch with number `number`.
  void FindAhead(Batch* batch, uint16_t number, std::vector<uint32_t>* missing);
  // Return whether host memory has a row of key, even if the row is due for eviction.
  bool Holds(int64_t key) const;
  // Return whether host memory has a row of key, and hold the row for the prefetched batch with
  // number `number`.
  bool HoldAhead(int64_t key, uint16_t number);
  // Record that the rows of prefetched batches up to index `number` are no longer needed.
  void ReleaseUpTo(int64_t number);

  // ---- promote

  // Reserve memory for a batch whose keys are unique. After Reserve, the following operations
  // cannot run out of memory: the promotion of missing rows, the insertion of rows that are in no
  // tier, and the recording of the batch's keys. Reserve also reserves the memory for the rows in
  // `pending`, unless `pending` is null. Throws std::bad_alloc.
  void Reserve(const Batch& batch, const std::vector<uint32_t>* missing,
               const PendingRows* pending);
  // For each i with found[i], promote the row of keys[i] from a lower tier; at[i] is the key's
  // position in the batch. `rows` contains the blocks of the rows, one after another. If `rows` is
  // null, Promote does not write the rows, and the caller must write the rows. Adds the number of
  // promoted rows to *promoted. Throws std::bad_alloc. After a std::bad_alloc, the rows that are
  // already promoted stay in host memory if `rows` is not null. Requires Reserve.
  void Promote(Batch* batch, const std::vector<uint32_t>& at, const std::vector<int64_t>& keys,
               const char* rows, const bool* found, Hold hold, int64_t* promoted);
  // For each index i in `of`, promote the row of keys[i]: copy block i of `rows` to host memory.
  // Hold the row in host memory for the prefetched batch with number `number`. Adds the number of
  // promoted rows to *promoted; a key with a row in host memory is skipped. After a std::bad_alloc,
  // the rows that are already promoted stay in host memory.
  void PromoteAhead(const std::vector<int64_t>& keys, const std::vector<char>& rows,
                    const std::vector<size_t>& of, uint16_t number, int64_t* promoted);

  // ---- demote

  // Choose about `rows` rows to demote: the rows with the lowest priority in a sample. Rows that
  // the step or the call has pinned are never chosen. Rows that prefetched batches have pinned are
  // chosen only if `prefetched` is true. The result is sorted by shard and place.
  VictimCandidates Victims(size_t rows, bool by_count, bool prefetched);
  // Append a copy of a victim; if the newest values are in a device cache, the copy contains these
  // values.
  void CopyOut(const VictimCandidate& victim, std::vector<int64_t>* keys, std::vector<char>* rows);
  // Free the place of a victim after the victim has been written to a lower tier.
  void Free(const VictimCandidate& victim) noexcept;
  // Call write(keys, rows) with copies of all rows, about `most` rows per call, and record that
  // these rows have copies in a lower tier.
  void CopyAll(size_t most,
               const std::function<void(std::vector<int64_t>, std::vector<char>)>& write);

  // ---- copies in lower tiers

  // Return the keys of removed rows whose copies in lower tiers must still be erased. The keys are
  // sorted and without duplicates.
  std::vector<int64_t> Departed() const;
  // Clear the list that Departed returns. Requires: the copies of the rows in the list have been
  // erased.
  void ForgetDeparted() noexcept;
  // Record that no row has a copy in lower tiers any more.
  void ForgetCopies() noexcept;

  // ---- rows removed from lower tiers

  // Reserve memory to record the eviction of these keys. Throws std::bad_alloc.
  void ReserveEvictions(const std::vector<int64_t>& keys);
  // Count and log the eviction of a row in a lower tier; `block` is a copy of the row.
  void NoteEvicted(const char* block, EvictionReason reason);
  // Whether changes are recorded.
  bool recording() const;
  // Reserve memory to record that keys were deleted: the keys of all rows in host memory, all keys
  // of a vocabulary, and the argument `keys` (keys of rows in lower tiers). Throws std::bad_alloc.
  void ReserveDeleted(const std::vector<int64_t>& keys);
  // Add keys to the change log: the vocabulary's keys that this worker owns, if the table has a
  // vocabulary, and the argument `keys` (keys of rows in lower tiers). The rows of these keys were
  // removed, have their first values again, or have another layout.
  void NoteDeleted(const std::vector<int64_t>& keys) noexcept;

  // Whether the digest of all rows is kept (shard_digests.h). If the digest is kept, a row in a
  // lower tier must be read before the row is replaced.
  bool KeepsDigest() const;
  void DropDigest() noexcept;

 private:
  TableCore& core_;
};

}  // namespace msrec
