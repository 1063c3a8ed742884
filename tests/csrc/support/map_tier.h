// SPDX-License-Identifier: Apache-2.0
//
// MapTier: a tier in memory that fails when it is told to. A write that fails has written some of
// its rows, as the contract of tiers allows. Told to move rows, its walks that are not exact give
// all that the contract allows besides: rows again, in the same part and in later ones, as they
// were when the walk began, and rows that are no longer there.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "testing.h"
#include "tier/tier.h"

namespace msrec {

class MapTier : public Tier {
 public:
  explicit MapTier(size_t row_bytes) : row_bytes_(row_bytes) {}

  // Asked before each call, without the tier's lock; true: the call fails.
  using Fail = std::function<bool(const char* call)>;
  void FailWith(Fail fail) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fail_ = std::move(fail);
  }

  // From now on rows move while they are walked over, by chance.
  void MoveRows(uint64_t seed) {
    const std::lock_guard<std::mutex> lock(mutex_);
    moves_ = std::make_unique<Rng>(seed);
  }
  // Number of rows that walks have given again.
  size_t repeated() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return repeated_;
  }

  void Read(const int64_t* keys, size_t n, char* rows, bool* found) override {
    Gate("read");
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < n; ++i) {
      const auto it = rows_.find(keys[i]);
      found[i] = it != rows_.end();
      if (found[i]) it->second.copy(rows + i * row_bytes_, row_bytes_);
    }
  }

  void Write(const int64_t* keys, size_t n, const char* rows) override {
    const bool fails = Fails("write");
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < (fails ? n / 2 : n); ++i) {
      rows_[keys[i]].assign(rows + i * row_bytes_, row_bytes_);
    }
    if (fails) throw std::runtime_error("write fails");
  }

  void Erase(const int64_t* keys, size_t n) override {
    const bool fails = Fails("erase");
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < (fails ? n / 2 : n); ++i) rows_.erase(keys[i]);
    if (fails) throw std::runtime_error("erase fails");
  }

  void Flush() override { Gate("flush"); }

  size_t size() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return rows_.size();
  }
  size_t row_bytes() const override { return row_bytes_; }

  std::vector<int64_t> Keys() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<int64_t> keys;
    for (const auto& [key, row] : rows_) keys.push_back(key);
    return keys;
  }

  std::unique_ptr<TierScan> Scan(bool exact) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (moves_ != nullptr && !exact) return std::make_unique<MovingScan>(this);
    std::vector<int64_t> keys;
    for (const auto& [key, row] : rows_) keys.push_back(key);
    return std::make_unique<MapScan>(this, std::move(keys));
  }

  void Contains(const int64_t* keys, size_t n, bool* found) const override {
    static_cast<void>(Fails("contains"));  // asked, but it does not fail
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < n; ++i) found[i] = rows_.count(keys[i]) != 0;
  }

  void Clear() override {
    Gate("clear");
    const std::lock_guard<std::mutex> lock(mutex_);
    rows_.clear();
  }

  TierStats Stats() const override {
    TierStats stats;
    stats.rows = size();
    return stats;
  }

 private:
  class MapScan : public TierScan {
   public:
    MapScan(MapTier* tier, std::vector<int64_t> keys) : tier_(tier), keys_(std::move(keys)) {}

    bool Next(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows) override {
      tier_->Gate("scan");
      keys->clear();
      rows->clear();
      const std::lock_guard<std::mutex> lock(tier_->mutex_);
      for (; next_ < keys_.size() && keys->size() < std::max<size_t>(most, 1); ++next_) {
        const auto it = tier_->rows_.find(keys_[next_]);
        if (it == tier_->rows_.end()) continue;
        keys->push_back(it->first);
        rows->insert(rows->end(), it->second.begin(), it->second.end());
      }
      return !keys->empty();
    }

   private:
    MapTier* const tier_;
    const std::vector<int64_t> keys_;
    size_t next_ = 0;
  };

  // Of the rows that there were when it began, and again some of them.
  class MovingScan : public TierScan {
   public:
    // Requires the tier's lock.
    explicit MovingScan(MapTier* tier)
        : tier_(tier), rows_(tier->rows_.begin(), tier->rows_.end()) {
      for (size_t i = 0; i < rows_.size(); ++i) {
        order_.push_back(i);
        if (i > 0 && tier->moves_->OneIn(3)) order_.push_back(tier->moves_->Below(i + 1));
      }
    }

    bool Next(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows) override {
      tier_->Gate("scan");
      keys->clear();
      rows->clear();
      const std::lock_guard<std::mutex> lock(tier_->mutex_);
      // Parts of different sizes, so that a row comes again in one part, or in another.
      if (most > 1 && tier_->moves_->OneIn(2)) most = 1 + most / 2;
      for (; next_ < order_.size() && keys->size() < std::max<size_t>(most, 1); ++next_) {
        const size_t i = order_[next_];
        tier_->repeated_ += given_.count(i);
        given_.insert(i);
        keys->push_back(rows_[i].first);
        rows->insert(rows->end(), rows_[i].second.begin(), rows_[i].second.end());
      }
      return !keys->empty();
    }

   private:
    MapTier* const tier_;
    const std::vector<std::pair<int64_t, std::string>> rows_;
    std::vector<size_t> order_;
    std::set<size_t> given_;
    size_t next_ = 0;
  };

  bool Fails(const char* call) const {
    Fail fail;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      fail = fail_;
    }
    return fail && fail(call);
  }
  void Gate(const char* call) {
    if (Fails(call)) throw std::runtime_error(std::string(call) + " fails");
  }

  const size_t row_bytes_;
  mutable std::mutex mutex_;
  Fail fail_;
  std::map<int64_t, std::string> rows_;
  std::unique_ptr<Rng> moves_;  // null: rows stay where they are
  size_t repeated_ = 0;
};

}  // namespace msrec
