// SPDX-License-Identifier: Apache-2.0
//
// LowerTiers: a table's tiers below host memory, with a queue of writes and erasures in front of
// the tiers. The results of reads include all queued writes and erasures. LowerTiers is a part of a
// table; the caller must hold the table's mutex. The queue and the tiers are opened at the first
// use.
//
// A row is in one of three states:
//   in host memory only
//   in host memory, with a copy in a lower tier from the time of its promotion or flush
//   in a lower tier only: rows() counts these rows
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rows/exported_rows.h"
#include "table/cache/fetches.h"
#include "table/cache/settings.h"
#include "table/cache/tier_scrub.h"
#include "table/core/upper_tier.h"
#include "tier/env.h"
#include "tier/tier_chain.h"
#include "tier/write_behind.h"

namespace msrec {

class LowerTiers {
 public:
  static constexpr size_t kPartRows = 16384;  // rows per write
  static constexpr size_t kScanRows = 4096;   // rows per read of a walk

  // Requires: upper outlives this object.
  LowerTiers(UpperTier* upper, CacheSettings settings)
      : upper_(*upper), settings_(std::move(settings)) {}

  const CacheSettings& settings() const { return settings_; }
  // Return the number of rows that are in a lower tier only; 0 before the first call of Queue.
  int64_t rows() const { return rows_; }
  // Add `more`, which may be negative, to the number of rows that are only in a lower tier.
  void AddRows(int64_t more) { rows_ += more; }
  Fetches& fetches() { return fetches_; }

  // Call fn, which calls a tier, and return the result of fn. An exception other than
  // std::bad_alloc becomes a std::runtime_error with the table's name.
  template <typename Fn>
  auto OnTier(Fn fn) const;

  // If the tiers are not open yet, open the tiers. Return the queue in front of the tiers.
  WriteBehind& Queue();
  // Return the queue as a shared pointer, for a thread that uses the queue without the table's
  // mutex.
  std::shared_ptr<WriteBehind> SharedQueue();
  // Continue a slow walk over the rows in the tiers; the walk skips the rows in the queue. Set
  // `keys` to the next keys, about `most` in number, and `rows` to the rows of these keys. Returns
  // false at the end of the walk; the next call then begins a new walk. Requires Queue().
  bool Sweep(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows);
  void RestartSweep() noexcept { sweep_.reset(); }
  // Continue the walk that checks every row, and read about `most` further rows. Return the number
  // of rows that were read, and true if the walk has ended (TierScrub::Look). If the tiers have
  // never been opened, the walk ends at once.
  std::pair<size_t, bool> Scrub(size_t most);

  // Erase the copies of rows that have been removed from the table. The table calls EraseDeparted
  // before it reads, writes or walks over rows in the tiers.
  void EraseDeparted();
  // Set found[i] to true if a lower tier has a row of keys[i]. If `rows` is not null, also copy the
  // rows to `rows`.
  void Read(const std::vector<int64_t>& keys, std::vector<char>* rows,
            std::unique_ptr<bool[]>* found);
  // Return the kind of the tier that has the row of `key`. Return kHostTier if the row is still in
  // the queue.
  std::string TierOf(int64_t key) const;
  // Write rows. If a prefetch is reading one of the written rows, the prefetch drops the outdated
  // copy of the row.
  void Write(std::vector<int64_t> keys, std::vector<char> rows);
  // Write the queued rows to the tiers, if possible. The rows stay in the queue if a tier is full
  // or unavailable, or if memory is short. All rows of the table can be read even while some rows
  // are still in the queue.
  void DrainIfPossible();
  // Call fn for the rows that are in a lower tier only, with several rows per call. Rows that are
  // due for eviction are included.
  void Walk(const std::function<void(KeyedRows&)>& fn);
  // Write every row to the tiers, including the rows in host memory. After Flush, a tier that
  // promises durability keeps the rows even if the process is killed (kill -9).
  void Flush();
  // Erase every row; return the number of rows that were in a lower tier only. If Clear throws, no
  // row has been erased.
  uint64_t Clear();

  // ---- a new layout of rows, in tiers of a new generation

  // Copies of the rows, stored in the new layout.
  struct Relaid {
    std::shared_ptr<TierChain> chain;
    std::shared_ptr<WriteBehind> queue;  // null if no tier was ever opened
    int64_t rows = 0;
    std::vector<int64_t> keys;  // the keys of all rows, if changes are recorded
  };
  // Copy all rows to the new layout, with fresh optimizer state. The existing rows stay unchanged.
  Relaid Relay(const RowLayout& layout);
  // Replace the table's rows with `relaid`, the result of Relay. Returns the old queue; the table
  // no longer reads the old queue's rows.
  std::shared_ptr<WriteBehind> Adopt(Relaid relaid) noexcept;
  // Clear tiers that the table no longer uses. If clearing fails, clearing is tried again by the
  // queue's thread, by Flush, by the next change of the layout, and by Close. Until the tiers are
  // cleared, the old rows occupy space but have no other effect. The table never reads the old
  // rows: a generation is opened a second time only after its rows have been cleared. Until these
  // tiers are cleared, Flush throws an exception. After a successful Flush at the end of a process,
  // a later process cannot find rows of an earlier layout.
  void DropStale(std::shared_ptr<WriteBehind> queue);
  // Clear the tiers that DropStale could not clear. Throws the tier's exception.
  void DrainStale();

  // Statistics of one tier: the traffic since the tiers were opened, and the present sizes.
  struct Level {
    std::string kind;
    TierChain::Traffic traffic;
    TierStats tier;
  };
  std::vector<Level> Levels() const;
  bool opened() const { return queue_ != nullptr; }
  size_t queued_rows() const { return queue_ == nullptr ? 0 : queue_->waiting_rows(); }

 private:
  // Maximum number of bytes in the queue. If the queued rows take more bytes than this maximum, a
  // step has to wait.
  static constexpr size_t kQueueBytes = size_t{64} << 20;

  std::shared_ptr<TierChain> OpenChain(int generation, size_t row_bytes);

  UpperTier& upper_;
  const CacheSettings settings_;
  int generation_ = 0;
  std::shared_ptr<TierChain> chain_;  // null before the first use
  std::shared_ptr<WriteBehind> queue_;
  int64_t rows_ = 0;
  Fetches fetches_;
  std::unique_ptr<TierScan> sweep_;  // null if the next Sweep starts at the beginning
  TierScrub scrub_;
  // Queues of stale tiers. A stale tier contains rows that the table no longer reads: rows in an
  // earlier layout, or rows in a new layout if the change to this layout failed. Each of these
  // queues contains only a request to clear its tier, and repeats the request until the tier is
  // cleared. Flush and the next change of the layout wait until the queues of all stale tiers are
  // empty.
  std::vector<std::shared_ptr<WriteBehind>> stale_;
};

template <typename Fn>
auto LowerTiers::OnTier(Fn fn) const {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const Corruption& error) {
    throw RowDamaged(upper_.Where(error.what()));
  } catch (const RowDamaged& error) {
    throw RowDamaged(upper_.Where(error.what()));
  } catch (const std::exception& error) {
    throw std::runtime_error(upper_.Where(error.what()));
  }
}

}  // namespace msrec
