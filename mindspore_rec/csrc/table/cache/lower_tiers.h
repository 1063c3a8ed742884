// SPDX-License-Identifier: Apache-2.0
//
// LowerTiers: the rows of a table in tiers below host memory, with a queue in front of the tiers.
// Readers see writes and erasures as soon as they are queued. LowerTiers is a part of a table and
// runs under the table's mutex. The queue and the tiers are opened at the first use.
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
  static constexpr size_t kPartRows = 16384;  // rows of one write
  static constexpr size_t kScanRows = 4096;   // rows of one read of a walk

  // Requires: upper outlives this object.
  LowerTiers(UpperTier* upper, CacheSettings settings)
      : upper_(*upper), settings_(std::move(settings)) {}

  const CacheSettings& settings() const { return settings_; }
  // Number of rows that are in a lower tier only; 0 before the first call of Queue.
  int64_t rows() const { return rows_; }
  // Count `more` more rows as being in a lower tier only; `more` may be negative.
  void AddRows(int64_t more) { rows_ += more; }
  Fetches& fetches() { return fetches_; }

  // Call fn, which calls a tier, and return its result. Exceptions become a std::runtime_error with
  // the table's name, except for std::bad_alloc.
  template <typename Fn>
  auto OnTier(Fn fn) const;

  // Open the tiers, unless they are open, and return the queue in front of them.
  WriteBehind& Queue();
  // Return Queue() for a thread that uses the queue without the table's mutex.
  std::shared_ptr<WriteBehind> SharedQueue();
  // Continue a slow walk over the tiers, without the queue: replace keys and rows by the next rows,
  // about `most`. Returns false at the end; the next call then starts again. Requires Queue().
  bool Sweep(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows);
  void RestartSweep() noexcept { sweep_.reset(); }
  // Continue the walk that checks every record: read about `most` records. Returns the number of
  // records, and whether the round has ended (TierScrub::Look). If the tiers have never had a row,
  // the round ends at once.
  std::pair<size_t, bool> Scrub(size_t most);

  // Erase the copies of rows that have left the table. Every read or write calls EraseDeparted
  // first.
  void EraseDeparted();
  // Set found[i] if a lower tier has a row of keys[i]. Unless `rows` is null, also read these rows.
  void Read(const std::vector<int64_t>& keys, std::vector<char>* rows,
            std::unique_ptr<bool[]>* found);
  // Return the kind of the tier that has a row of key. Return kHostTier if no tier has the row,
  // because the row is still in the queue.
  std::string TierOf(int64_t key) const;
  // Write rows, and invalidate reads of them that are in flight.
  void Write(std::vector<int64_t> keys, std::vector<char> rows);
  // Write the queued rows to the tiers, if possible. If a tier is full or unavailable, or memory is
  // short, the rows stay in the queue, and whole tables can still be read.
  void DrainIfPossible();
  // Call fn with the rows that are in a lower tier only, one part at a time, including rows that
  // are due.
  void Walk(const std::function<void(KeyedRows&)>& fn);
  // Write every row, including the rows in host memory, and wait until the rows survive kill -9 in
  // tiers that guarantee it.
  void Flush();
  // Erase every row. Only the last operation of Clear may fail. After that operation, all rows are
  // gone.
  void Clear();

  // ---- a new layout of rows, in tiers of a new generation

  // The rows in the new layout.
  struct Relaid {
    std::shared_ptr<TierChain> chain;
    std::shared_ptr<WriteBehind> queue;  // null: no tier was ever opened
    int64_t rows = 0;
    std::vector<int64_t> keys;  // where changes are recorded
  };
  // Copy all rows to the new layout, with fresh optimizer state. The existing rows stay unchanged.
  Relaid Relay(const RowLayout& layout);
  // Replace the rows by the copies of Relay. Returns the old queue; its rows are not read any more.
  std::shared_ptr<WriteBehind> Adopt(Relaid relaid) noexcept;
  // Clear tiers that the table no longer uses. A failed attempt is repeated by the queue's own
  // thread, by Flush, before the next layout and by Close. Until a clear succeeds, the old rows
  // only cost space. This table never reads the old rows, because it opens a generation a second
  // time only after the generation's rows are gone. A later run finds the old rows only if this run
  // ends without a Flush, and Flush fails as long as the old rows exist.
  void DropStale(std::shared_ptr<WriteBehind> queue);
  // Try again to clear the tiers of DropStale. Throws the tier's exception.
  void DrainStale();

  // Traffic and sizes of each level, after the tiers were opened.
  struct Level {
    std::string kind;
    TierChain::Traffic traffic;
    TierStats tier;
  };
  std::vector<Level> Levels() const;
  bool opened() const { return queue_ != nullptr; }
  size_t queued_rows() const { return queue_ == nullptr ? 0 : queue_->waiting_rows(); }

 private:
  // Bytes of queued rows in memory before a step has to wait.
  static constexpr size_t kQueueBytes = size_t{64} << 20;

  std::shared_ptr<TierChain> OpenChain(int generation, size_t row_bytes);

  UpperTier& upper_;
  const CacheSettings settings_;
  int generation_ = 0;
  std::shared_ptr<TierChain> chain_;  // null until it is first needed
  std::shared_ptr<WriteBehind> queue_;
  int64_t rows_ = 0;
  Fetches fetches_;
  std::unique_ptr<TierScan> sweep_;  // null: the next Sweep starts at the beginning
  TierScrub scrub_;
  // Queues in front of tiers that are no longer read, of an earlier layout or of a layout that was
  // given up. Each queue contains only the request to clear its tier, and retries this request by
  // itself. Flush and the next layout wait until these queues are empty.
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
