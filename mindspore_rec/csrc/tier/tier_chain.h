// SPDX-License-Identifier: Apache-2.0
//
// TierChain: several tiers used as one, the fastest first. Each row is in one of the tiers; while a
// row moves, the row is in two tiers. Rows are written to the first tier; if a level has more rows
// than its limit, rows spill to the next level.
//
// Any thread may call Read and read the counters at any time. Only one method that changes rows
// runs at a time.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tier/tier.h"

namespace msrec {

class TierChain : public Tier {
 public:
  struct Level {
    std::string kind;  // for people and statistics: "remote", "ssd"
    std::shared_ptr<Tier> tier;
    int64_t max_rows = -1;  // rows over it spill to the next level; -1: no limit
  };
  struct Traffic {
    uint64_t hits = 0;  // rows that Read found there
    uint64_t written_rows = 0;
    uint64_t spilled_rows = 0;  // to the next level
  };

  // Requires: at least one level, the same row_bytes in all levels, and no row limit in the last
  // level.
  explicit TierChain(std::vector<Level> levels);

  void Read(const int64_t* keys, size_t n, char* rows, bool* found) override;
  void Contains(const int64_t* keys, size_t n, bool* found) const override;
  void Write(const int64_t* keys, size_t n, const char* rows) override;
  void Erase(const int64_t* keys, size_t n) override;
  void Flush() override;
  void Clear() override;
  size_t size() const override;
  size_t row_bytes() const override { return levels_[0].tier->row_bytes(); }
  std::vector<int64_t> Keys() const override;
  std::unique_ptr<TierScan> Scan(bool exact) override;
  TierStats Stats() const override;

  // Erases from lower levels the rows that an upper level also has. Two levels have the same row if
  // a process ended between the write to one level and the erasure from the other level. Call
  // Settle before all other methods if another process has written the levels.
  void Settle();

  const std::vector<Level>& levels() const { return levels_; }
  Traffic traffic(size_t level) const;

 private:
  struct Counters {
    std::atomic<uint64_t> hits{0}, written_rows{0}, spilled_rows{0};
  };

  // Calls `find` for one level after another. If rows may have moved to a level that was already
  // searched, FindAll searches again for the keys whose rows were not found.
  template <typename Find>
  void FindAll(const int64_t* keys, size_t n, bool* found, Find find) const;
  void Spill(size_t level);
  void FinishSpills();

  const std::vector<Level> levels_;
  std::vector<Counters> counters_;
  mutable std::mutex change_mutex_;
  // Number of writes that have put rows into the first level. For a short time after a write is
  // counted, lower levels may still contain older copies of the written rows.
  std::atomic<uint64_t> ascents_{0};
  // For each level, the keys of rows that a failed spill may have left both in this level and in
  // the next level.
  std::vector<std::vector<int64_t>> halfway_;
  std::vector<std::unique_ptr<TierScan>> spilling_;  // at the next rows to spill, by level
};

}  // namespace msrec
