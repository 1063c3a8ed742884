// SPDX-License-Identifier: Apache-2.0
//
// LowerTiers: the rows of a table that are in tiers below host memory, behind a queue that shows
// what was written or erased to readers at once. A part of a table, under its mutex; the queue and
// the tiers are opened when they are first needed.
//
// A row is in one of three states:
//   in host memory only
//   in host memory, with a copy in a lower tier as it was when it was promoted or flushed
//   in a lower tier only: these are the ones that rows() counts
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

  // Requires: upper outlives it.
  LowerTiers(UpperTier* upper, CacheSettings settings)
      : upper_(*upper), settings_(std::move(settings)) {}

  const CacheSettings& settings() const { return settings_; }
  // Number of rows that are in a lower tier only. 0 before Queue was called.
  int64_t rows() const { return rows_; }
  // Note that `more` more rows are in a lower tier only; fewer rows if `more` is negative.
  void AddRows(int64_t more) { rows_ += more; }
  Fetches& fetches() { return fetches_; }

  // Call fn, which calls a tier, and return its result. What it throws becomes a
  // std::runtime_error with the table's name; std::bad_alloc stays.
  template <typename Fn>
  auto OnTier(Fn fn) const;

  // Open the tiers, if they are not, and return the queue in front of them.
  WriteBehind& Queue();
  // The same for a thread that goes on using it without the table's mutex.
  std::shared_ptr<WriteBehind> SharedQueue();
  // Go on with a slow walk over the tiers themselves, without the queue: replace keys and rows by
  // the next ones, about `most`. False at its end, after which it starts anew. Requires Queue().
  bool Sweep(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows);
  void RestartSweep() noexcept { sweep_.reset(); }
  // Go on with the walk that checks every record: read about `most` and return how many, and
  // whether they were the last of a round (TierScrub::Look). Tiers that no row has come to yet end
  // it at once.
  std::pair<size_t, bool> Scrub(size_t most);

  // Erase the copies of rows that have left the table: before anything is read or written.
  void EraseDeparted();
  // Set which keys have a row in a lower tier and, unless `rows` is null, read these rows.
  void Read(const std::vector<int64_t>& keys, std::vector<char>* rows,
            std::unique_ptr<bool[]>* found);
  // Return the kind of the tier that has a row of key; kHostTier if none has one, since it is still
  // on its way down in the queue.
  std::string TierOf(int64_t key) const;
  // Write rows, whose reads in flight are invalidated.
  void Write(std::vector<int64_t> keys, std::vector<char> rows);
  // Have the tiers take what is queued, if they can. Where they cannot, being full or away, or for
  // want of memory, it stays in the queue: whole tables can be read all the same.
  void DrainIfPossible();
  // Call fn with the rows that are in a lower tier only, a part at a time, due ones among them.
  void Walk(const std::function<void(KeyedRows&)>& fn);
  // Write every row, with what host memory has, and wait until it survives kill -9, where the
  // tiers do that.
  void Flush();
  // Erase every row. The last thing in it may fail; from then on all are gone.
  void Clear();

  // ---- another layout of rows, in tiers of another generation

  // The rows in another layout.
  struct Relaid {
    std::shared_ptr<TierChain> chain;
    std::shared_ptr<WriteBehind> queue;  // null: no tier was ever opened
    int64_t rows = 0;
    std::vector<int64_t> keys;  // where changes are recorded
  };
  // Copy all rows in the new layout, with fresh optimizer state, beside those there are, which stay
  // as they are.
  Relaid Relay(const RowLayout& layout);
  // Take them. Returns the queue before, whose rows nobody reads from now on.
  std::shared_ptr<WriteBehind> Adopt(Relaid relaid) noexcept;
  // Clear tiers that the table has left. Where they cannot be now, that is tried again: by the
  // queue's own thread, by Flush, before the next layout and by Close. It costs no more than space
  // until then: this table never opens a generation twice while rows are in it, so it cannot read
  // them, and a later run finds them only if this one ends without a Flush, which fails as long as
  // they are there.
  void DropStale(std::shared_ptr<WriteBehind> queue);
  // Try that again. Throws what a tier throws.
  void DrainStale();

  // Traffic and sizes of each level, once the tiers were opened.
  struct Level {
    std::string kind;
    TierChain::Traffic traffic;
    TierStats tier;
  };
  std::vector<Level> Levels() const;
  bool opened() const { return queue_ != nullptr; }
  size_t queued_rows() const { return queue_ == nullptr ? 0 : queue_->waiting_rows(); }

 private:
  // Rows on their way down that are held in memory before a step has to wait.
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
  // Queues in front of tiers whose rows nobody reads any more, of a layout before this one or one
  // that never came to be: each holds nothing but that its tier is to be cleared, and tries so by
  // itself. Flush and the next layout wait for them.
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
