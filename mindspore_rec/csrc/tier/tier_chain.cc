// SPDX-License-Identifier: Apache-2.0
#include "tier/tier_chain.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

namespace msrec {
namespace {

constexpr size_t kSpillRows = 4096;  // looked at a time

// Scans the levels one after another. For each level, `halfway` contains the sorted keys of rows
// that may be both in this level and in the next level. If the upper level has returned the row of
// a key in `halfway`, the scan does not return the lower level's row of this key.
class ChainScan : public TierScan {
 public:
  ChainScan(std::vector<std::unique_ptr<TierScan>> scans, size_t row_bytes,
            std::vector<std::vector<int64_t>> halfway)
      : scans_(std::move(scans)), row_bytes_(row_bytes), halfway_(std::move(halfway)) {}

  bool Next(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows) override {
    while (level_ < scans_.size()) {
      if (!scans_[level_]->Next(most, keys, rows)) {
        ++level_;
        continue;
      }
      if (level_ > 0 && !given_.empty()) DropGiven(keys, rows);
      if (keys->empty()) continue;
      for (const int64_t key : *keys) {
        const std::vector<int64_t>& some = halfway_[level_];
        if (std::binary_search(some.begin(), some.end(), key)) given_.insert(key);
      }
      return true;
    }
    return false;
  }

 private:
  void DropGiven(std::vector<int64_t>* keys, std::vector<char>* rows) const {
    size_t kept = 0;
    for (size_t i = 0; i < keys->size(); ++i) {
      if (given_.count((*keys)[i]) != 0) continue;
      (*keys)[kept] = (*keys)[i];
      std::memmove(rows->data() + kept * row_bytes_, rows->data() + i * row_bytes_, row_bytes_);
      ++kept;
    }
    keys->resize(kept);
    rows->resize(kept * row_bytes_);
  }

  std::vector<std::unique_ptr<TierScan>> scans_;
  const size_t row_bytes_;
  const std::vector<std::vector<int64_t>> halfway_;
  std::unordered_set<int64_t> given_;
  size_t level_ = 0;
};

}  // namespace

TierChain::TierChain(std::vector<Level> levels)
    : levels_(std::move(levels)),
      counters_(levels_.size()),
      halfway_(levels_.size()),
      spilling_(levels_.size()) {}

// A row that moves down is written to the lower level first, and then erased from the upper level,
// so a search from top to bottom finds the row even during the move. A row may also move up, from a
// level that was not searched yet to a level that was already searched. If a row has moved up, all
// levels are searched again.
template <typename Find>
void TierChain::FindAll(const int64_t* keys, size_t n, bool* found, Find find) const {
  std::vector<size_t> at;
  std::vector<int64_t> missing;
  std::fill(found, found + n, false);
  for (;;) {
    const uint64_t ascents = ascents_;
    for (size_t level = 0; level < levels_.size(); ++level) {
      at.clear();
      missing.clear();
      for (size_t i = 0; i < n; ++i) {
        if (found[i]) continue;
        at.push_back(i);
        missing.push_back(keys[i]);
      }
      if (missing.empty()) return;
      find(level, missing, at);
    }
    if (ascents == ascents_ || levels_.size() == 1) return;
  }
}

void TierChain::Read(const int64_t* keys, size_t n, char* rows, bool* found) {
  if (levels_.size() == 1) {
    levels_[0].tier->Read(keys, n, rows, found);
    counters_[0].hits += static_cast<uint64_t>(std::count(found, found + n, true));
    return;
  }
  std::vector<char> read;
  std::unique_ptr<bool[]> here(new bool[n]);
  const size_t row_size = row_bytes();
  const auto find = [&](size_t level, const std::vector<int64_t>& some,
                        const std::vector<size_t>& at) {
    if (some.size() == n) {
      levels_[level].tier->Read(keys, n, rows, found);
      counters_[level].hits += static_cast<uint64_t>(std::count(found, found + n, true));
      return;
    }
    read.resize(some.size() * row_size);
    levels_[level].tier->Read(some.data(), some.size(), read.data(), here.get());
    for (size_t j = 0; j < some.size(); ++j) {
      if (!here[j]) continue;
      found[at[j]] = true;
      ++counters_[level].hits;
      std::memcpy(rows + at[j] * row_size, read.data() + j * row_size, row_size);
    }
  };
  FindAll(keys, n, found, find);
}

void TierChain::Contains(const int64_t* keys, size_t n, bool* found) const {
  std::unique_ptr<bool[]> here(new bool[n]);
  FindAll(keys, n, found,
          [&](size_t level, const std::vector<int64_t>& some, const std::vector<size_t>& at) {
            levels_[level].tier->Contains(some.data(), some.size(), here.get());
            for (size_t j = 0; j < some.size(); ++j) found[at[j]] = here[j];
          });
}

void TierChain::Write(const int64_t* keys, size_t n, const char* rows) {
  std::lock_guard<std::mutex> lock(change_mutex_);
  FinishSpills();
  levels_[0].tier->Write(keys, n, rows);
  counters_[0].written_rows += n;
  ++ascents_;
  for (size_t level = 1; level < levels_.size(); ++level) levels_[level].tier->Erase(keys, n);
  for (size_t level = 0; level + 1 < levels_.size(); ++level) Spill(level);
}

void TierChain::Spill(size_t level) {
  const Level& from = levels_[level];
  if (from.max_rows < 0) return;
  Tier& to = *levels_[level + 1].tier;
  std::vector<int64_t> keys;
  std::vector<char> rows;
  bool restarted = false;
  for (;;) {
    const auto held = static_cast<int64_t>(from.tier->size());
    if (held <= from.max_rows) return;
    std::unique_ptr<TierScan>& scan = spilling_[level];
    if (scan == nullptr) scan = from.tier->Scan(false);
    if (!scan->Next(kSpillRows, &keys, &rows)) {
      scan.reset();
      if (restarted) return;  // nothing there that a whole scan could see
      restarted = true;
      continue;
    }
    keys.resize(std::min<size_t>(keys.size(), held - from.max_rows));
    // A scan may return an older version of a row, so the row is read again.
    rows.resize(keys.size() * row_bytes());
    std::unique_ptr<bool[]> found(new bool[keys.size()]);
    from.tier->Read(keys.data(), keys.size(), rows.data(), found.get());
    size_t kept = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!found[i]) continue;
      keys[kept] = keys[i];
      std::memmove(rows.data() + kept * row_bytes(), rows.data() + i * row_bytes(), row_bytes());
      ++kept;
    }
    if (kept == 0) continue;
    keys.resize(kept);
    halfway_[level] = keys;
    to.Write(keys.data(), kept, rows.data());
    from.tier->Erase(keys.data(), kept);
    halfway_[level].clear();
    counters_[level].spilled_rows += kept;
    counters_[level + 1].written_rows += kept;
    restarted = false;
  }
}

// Erases from the lower level the rows that a failed spill has left in two levels. `halfway_`
// contains the keys of the rows. FinishSpills runs before any other write, so a row that is in two
// levels is the same in both levels.
void TierChain::FinishSpills() {
  for (size_t level = 0; level + 1 < levels_.size(); ++level) {
    std::vector<int64_t>& keys = halfway_[level];
    if (keys.empty()) continue;
    std::unique_ptr<bool[]> above(new bool[keys.size()]);
    levels_[level].tier->Contains(keys.data(), keys.size(), above.get());
    std::vector<int64_t> twice;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (above[i]) twice.push_back(keys[i]);
    }
    if (!twice.empty()) levels_[level + 1].tier->Erase(twice.data(), twice.size());
    keys.clear();
  }
}

void TierChain::Erase(const int64_t* keys, size_t n) {
  std::lock_guard<std::mutex> lock(change_mutex_);
  FinishSpills();
  for (const Level& level : levels_) level.tier->Erase(keys, n);
}

void TierChain::Flush() {
  std::lock_guard<std::mutex> lock(change_mutex_);
  for (const Level& level : levels_) level.tier->Flush();
}

void TierChain::Clear() {
  std::lock_guard<std::mutex> lock(change_mutex_);
  for (auto& scan : spilling_) scan.reset();
  for (const Level& level : levels_) level.tier->Clear();
  for (auto& keys : halfway_) keys.clear();
}

void TierChain::Settle() {
  std::lock_guard<std::mutex> lock(change_mutex_);
  std::vector<int64_t> keys;
  std::vector<char> rows;
  for (size_t upper = 0; upper + 1 < levels_.size(); ++upper) {
    if (levels_[upper].tier->size() == 0) continue;
    const auto scan = levels_[upper].tier->Scan(true);
    while (scan->Next(kSpillRows, &keys, &rows)) {
      for (size_t lower = upper + 1; lower < levels_.size(); ++lower) {
        if (levels_[lower].tier->size() > 0) {
          levels_[lower].tier->Erase(keys.data(), keys.size());
        }
      }
    }
  }
}

size_t TierChain::size() const {
  size_t rows = 0;
  for (const Level& level : levels_) rows += level.tier->size();
  return rows;
}

std::vector<int64_t> TierChain::Keys() const {
  std::vector<int64_t> keys;
  for (const Level& level : levels_) {
    const std::vector<int64_t> more = level.tier->Keys();
    keys.insert(keys.end(), more.begin(), more.end());
  }
  return keys;
}

std::unique_ptr<TierScan> TierChain::Scan(bool exact) {
  std::vector<std::unique_ptr<TierScan>> scans;
  for (const Level& level : levels_) scans.push_back(level.tier->Scan(exact));
  std::vector<std::vector<int64_t>> halfway(levels_.size());
  if (exact) {
    std::lock_guard<std::mutex> lock(change_mutex_);
    halfway = halfway_;
    for (auto& keys : halfway) std::sort(keys.begin(), keys.end());
  }
  return std::make_unique<ChainScan>(std::move(scans), row_bytes(), std::move(halfway));
}

TierStats TierChain::Stats() const {
  TierStats sum;
  for (const Level& level : levels_) {
    const TierStats each = level.tier->Stats();
    sum.rows += each.rows;
    sum.live_bytes += each.live_bytes;
    sum.disk_bytes += each.disk_bytes;
    sum.index_bytes += each.index_bytes;
    sum.buffer_bytes += each.buffer_bytes;
    sum.read_bytes += each.read_bytes;
    sum.written_bytes += each.written_bytes;
  }
  return sum;
}

TierChain::Traffic TierChain::traffic(size_t level) const {
  const Counters& counters = counters_[level];
  return {counters.hits, counters.written_rows, counters.spilled_rows};
}

}  // namespace msrec
