// SPDX-License-Identifier: Apache-2.0
#include "table/cache/lower_tiers.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

namespace msrec {

// ---------------------------------------------------------------- opening

std::shared_ptr<TierChain> LowerTiers::OpenChain(int generation, size_t row_bytes) {
  std::vector<TierChain::Level> levels;
  for (const LevelConfig& level : settings_.levels) {
    std::shared_ptr<Tier> tier = OnTier([&] { return level.open(row_bytes, generation); });
    if (tier->row_bytes() != row_bytes) {
      throw std::runtime_error(upper_.Where(
          "its " + level.kind + " tier has rows of " + std::to_string(tier->row_bytes()) +
          " bytes, the table has rows of " + std::to_string(row_bytes)));
    }
    levels.push_back({level.kind, std::move(tier), level.max_rows});
  }
  return std::make_shared<TierChain>(std::move(levels));
}

WriteBehind& LowerTiers::Queue() {
  if (queue_ == nullptr) {
    auto chain = OpenChain(generation_, upper_.context().layout.stride());
    OnTier([&] { chain->Settle(); });
    queue_ = OnTier([&] { return std::make_shared<WriteBehind>(chain, kQueueBytes); });
    rows_ = static_cast<int64_t>(chain->size());
    chain_ = std::move(chain);
  }
  return *queue_;
}

std::shared_ptr<WriteBehind> LowerTiers::SharedQueue() {
  Queue();
  return queue_;
}

bool LowerTiers::Sweep(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows) {
  if (sweep_ == nullptr) sweep_ = OnTier([&] { return chain_->Scan(false); });
  const bool more = OnTier([&] { return sweep_->Next(most, keys, rows); });
  if (!more) sweep_.reset();
  return more;
}

std::pair<size_t, bool> LowerTiers::Scrub(size_t most) {
  if (chain_ == nullptr) return {0, true};
  bool ended = false;
  const size_t looked = OnTier([&] { return scrub_.Look(chain_.get(), most, &ended); });
  return {looked, ended};
}

// ---------------------------------------------------------------- rows

void LowerTiers::EraseDeparted() {
  const std::vector<int64_t> keys = upper_.Departed();
  if (keys.empty()) return;
  fetches_.Invalidate(keys);
  OnTier([&] { Queue().Erase(keys); });
  // Forget the keys only after the queue has accepted the keys. If Erase throws, a later call of
  // EraseDeparted erases the copies.
  upper_.ForgetDeparted();
}

void LowerTiers::Read(const std::vector<int64_t>& keys, std::vector<char>* rows,
                      std::unique_ptr<bool[]>* found) {
  EraseDeparted();
  WriteBehind& queue = Queue();
  found->reset(new bool[keys.size()]());
  if (rows != nullptr) rows->resize(keys.size() * upper_.context().layout.stride());
  if (rows_ == 0 || keys.empty()) return;
  OnTier([&] {
    if (rows == nullptr) {
      queue.Contains(keys.data(), keys.size(), found->get());
    } else {
      queue.Read(keys.data(), keys.size(), rows->data(), found->get());
    }
  });
}

std::string LowerTiers::TierOf(int64_t key) const {
  if (chain_ == nullptr) return kHostTier;
  for (const TierChain::Level& level : chain_->levels()) {
    bool found = false;
    OnTier([&] { level.tier->Contains(&key, 1, &found); });
    if (found) return level.kind;
  }
  return kHostTier;
}

void LowerTiers::Write(std::vector<int64_t> keys, std::vector<char> rows) {
  fetches_.Invalidate(keys);
  OnTier([&] { Queue().Write(std::move(keys), std::move(rows)); });
}

void LowerTiers::DrainIfPossible() {
  try {
    Queue().Drain();
  } catch (const std::runtime_error&) {
  } catch (const std::bad_alloc&) {  // also of the queue's thread
  }
}

void LowerTiers::Walk(const std::function<void(KeyedRows&)>& fn) {
  EraseDeparted();
  Queue();
  if (rows_ == 0) return;
  std::vector<int64_t> keys;
  std::vector<char> blocks;
  DrainIfPossible();
  const WriteBehind::Pause pause(&Queue());
  const WriteBehind::Waiting waiting = Queue().waiting();
  std::unique_ptr<TierScan> scan;
  if (!waiting.cleared) scan = OnTier([&] { return chain_->Scan(true); });
  const size_t stride = upper_.context().layout.stride();
  while (scan != nullptr && OnTier([&] { return scan->Next(kScanRows, &keys, &blocks); })) {
    KeyedRows rows;
    for (size_t i = 0; i < keys.size(); ++i) {
      char* block = blocks.data() + i * stride;
      if (upper_.Holds(keys[i]) || waiting.rows.count(keys[i]) != 0) continue;
      ReadThrough(upper_.context(), block);  // also sets the event time
      rows.emplace_back(keys[i], block);
    }
    if (!rows.empty()) fn(rows);
  }
  for (const auto& [key, row] : waiting.rows) {
    if (row == nullptr || upper_.Holds(key)) continue;
    blocks.assign(row, row + stride);
    ReadThrough(upper_.context(), blocks.data());
    KeyedRows rows{{key, blocks.data()}};
    fn(rows);
  }
}

void LowerTiers::Flush() {
  EraseDeparted();
  // Drain the queue first. If the tier fails, the error is thrown before the table's rows are
  // copied to the queue.
  OnTier([&] { Queue().Drain(); });
  upper_.CopyAll(kPartRows, [&](std::vector<int64_t> keys, std::vector<char> rows) {
    Write(std::move(keys), std::move(rows));
  });
  OnTier([&] { Queue().Flush(); });
  DrainStale();  // so that the next run does not find rows that this run has left behind
}

uint64_t LowerTiers::Clear() {
  std::vector<int64_t> keys;
  Queue();
  if (upper_.recording()) {
    Walk([&](KeyedRows& rows) {
      for (const auto& each : rows) keys.push_back(each.first);
    });
  }
  upper_.ReserveDeleted(keys);
  Queue().Clear();
  upper_.NoteDeleted(keys);
  RestartSweep();
  scrub_.Restart();
  fetches_.CancelAll();
  return static_cast<uint64_t>(std::exchange(rows_, 0));
}

// ---------------------------------------------------------------- another layout

LowerTiers::Relaid LowerTiers::Relay(const RowLayout& layout) {
  Relaid relaid;
  if (queue_ == nullptr) return relaid;
  DrainStale();  // also clears the tiers of a failed earlier attempt
  stale_.reserve(2);
  relaid.chain = OpenChain(generation_ + 1, layout.stride());
  relaid.queue = std::make_shared<WriteBehind>(relaid.chain, kQueueBytes);
  try {
    TierChain& fresh = *relaid.chain;
    OnTier([&] { fresh.Clear(); });
    Walk([&](KeyedRows& rows) {
      std::vector<int64_t> keys;
      std::vector<char> blocks(rows.size() * layout.stride());
      for (size_t i = 0; i < rows.size(); ++i) {
        msrec::Relay(upper_.context(), rows[i].second, layout, blocks.data() + i * layout.stride());
        keys.push_back(rows[i].first);
      }
      OnTier([&] { fresh.Write(keys.data(), keys.size(), blocks.data()); });
      relaid.rows += static_cast<int64_t>(keys.size());
      if (upper_.recording()) {
        relaid.keys.insert(relaid.keys.end(), keys.begin(), keys.end());
      }
    });
  } catch (const std::exception&) {
    DropStale(std::move(relaid.queue));
    throw;
  }
  return relaid;
}

std::shared_ptr<WriteBehind> LowerTiers::Adopt(Relaid relaid) noexcept {
  upper_.NoteDeleted(relaid.keys);
  if (relaid.queue == nullptr) return nullptr;
  RestartSweep();
  scrub_.Restart();
  queue_.swap(relaid.queue);
  chain_.swap(relaid.chain);
  rows_ = relaid.rows;
  ++generation_;
  upper_.ForgetCopies();
  fetches_.CancelAll();
  return std::move(relaid.queue);
}

void LowerTiers::DropStale(std::shared_ptr<WriteBehind> queue) {
  if (queue == nullptr) return;
  stale_.push_back(std::move(queue));  // cannot fail, because Relay reserved memory
  try {
    DrainStale();
  } catch (const std::exception&) {
  }
}

void LowerTiers::DrainStale() {
  while (!stale_.empty()) {
    WriteBehind& queue = *stale_.back();
    OnTier([&] {
      queue.Clear();
      queue.Drain();
    });
    stale_.pop_back();
  }
}

std::vector<LowerTiers::Level> LowerTiers::Levels() const {
  std::vector<Level> levels;
  for (size_t i = 0; chain_ != nullptr && i < chain_->levels().size(); ++i) {
    const TierChain::Level& level = chain_->levels()[i];
    levels.push_back({level.kind, chain_->traffic(i), level.tier->Stats()});
  }
  return levels;
}

}  // namespace msrec
