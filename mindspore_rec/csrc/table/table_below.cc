// SPDX-License-Identifier: Apache-2.0
//
// Table: all rows below: walks over them, their eviction, new layouts.
#include <algorithm>
#include <cstring>

#include "table/table_guard.h"

namespace msrec {
namespace {

constexpr size_t kScanRows = 4096;
// Rows below that one step's slice of the sweep looks at: they are invisible once they are due, so
// this only frees space.
constexpr size_t kMostSwept = 2048;

}  // namespace

// ---------------------------------------------------------------- all rows below

// Has the tiers take what is in the queue. Where they cannot, being full or away, it is still in
// there: whole tables can be read all the same.
void Table::DrainIfPossible() {
  try {
    Queue().Drain();
  } catch (const std::runtime_error&) {
  }
}

// Calls fn with the rows whose only place is below, a part at a time, due ones among them.
template <typename Fn>
void Table::WalkBelow(Fn fn) {
  if (below_ == nullptr) return;
  PushErased();
  Queue();
  if (below_->rows == 0) return;
  std::vector<int64_t> keys;
  std::vector<char> blocks;
  DrainIfPossible();
  const WriteBehind::Pause pause(&Queue());
  const WriteBehind::Waiting waiting = Queue().waiting();
  std::unique_ptr<TierScan> scan;
  if (!waiting.cleared) scan = OnTier([&] { return below_->chain->Scan(true); });
  const size_t stride = core_.context.layout.stride();
  while (scan != nullptr && OnTier([&] { return scan->Next(kScanRows, &keys, &blocks); })) {
    KeyedRows rows;
    for (size_t i = 0; i < keys.size(); ++i) {
      char* block = blocks.data() + i * stride;
      Shard& shard = core_.ShardFor(keys[i]);
      if (shard.Holds(keys[i]) || waiting.rows.count(keys[i]) != 0) continue;
      shard.View(block);  // with its time
      rows.emplace_back(keys[i], block);
    }
    if (!rows.empty()) fn(rows);
  }
  for (const auto& [key, row] : waiting.rows) {
    if (row == nullptr || core_.ShardFor(key).Holds(key)) continue;
    blocks.assign(row, row + stride);
    core_.ShardFor(key).View(blocks.data());
    KeyedRows rows{{key, blocks.data()}};
    fn(rows);
  }
}

void Table::WalkAll(const std::function<void(const KeyedRows&)>& fn) {
  core_.RequireWrittenBack();
  if (core_.device != nullptr) core_.device->WriteBackAll();
  std::vector<bool> seen(below_ != nullptr && core_.context.is_static() ? core_.config.vocabulary
                                                                        : 0);
  const auto give = [&](const KeyedRows& rows) {
    for (const auto& each : rows) {
      if (!seen.empty()) seen[each.first] = true;
    }
    fn(rows);
  };
  for (const auto& shard : core_.shards) {
    KeyedRows rows;
    for (const char* row : shard->Rows()) rows.emplace_back(Meta(row)->key, row);
    give(rows);
  }
  WalkBelow([&](KeyedRows& rows) {
    rows.erase(
        std::remove_if(rows.begin(), rows.end(),
                       [&](const auto& each) { return core_.context.Due(*Meta(each.second)); }),
        rows.end());
    give(rows);
  });
  // A static table has the rows that were never looked up too.
  const size_t stride = core_.context.layout.stride();
  std::vector<char> blocks(seen.empty() ? 0 : kScanRows * stride);
  KeyedRows rows;
  for (size_t key = 0; key < seen.size(); ++key) {
    if (!seen[key]) {
      char* block = blocks.data() + rows.size() * stride;
      core_.ShardFor(static_cast<int64_t>(key)).FreshBlock(block, static_cast<int64_t>(key));
      rows.emplace_back(key, block);
    }
    if (rows.size() < kScanRows && key + 1 < seen.size()) continue;
    fn(rows);
    rows.clear();
  }
}

size_t Table::AllRows() const {
  if (below_ == nullptr) return core_.Rows();
  if (core_.context.is_static()) return static_cast<size_t>(core_.config.vocabulary);
  return core_.Rows() + static_cast<size_t>(below_->rows);
}

// ---------------------------------------------------------------- eviction below

// Drops those rows below for which there is a reason; how many.
size_t Table::DropBelow(const std::vector<int64_t>& keys,
                        const std::function<EvictionReason(const char*)>& reason) {
  // What a walk gave may be older than the row is now.
  std::vector<char> rows;
  std::unique_ptr<bool[]> found;
  ReadBelow(keys, &rows, &found);
  const size_t stride = core_.context.layout.stride();
  std::vector<int64_t> going;
  std::vector<EvictionReason> why;
  for (size_t i = 0; i < keys.size(); ++i) {
    char* block = rows.data() + i * stride;
    if (!found[i] || core_.ShardFor(keys[i]).Holds(keys[i])) continue;
    core_.ShardFor(keys[i]).View(block);
    const EvictionReason each = reason(block);
    if (each == EvictionReason::kNone) continue;
    going.push_back(keys[i]);
    why.push_back(each);
  }
  if (going.empty()) return 0;
  Overtake(going);
  size_t of_shard[kNumShards] = {};
  for (const int64_t key : going) ++of_shard[ShardOf(key, HashKey(key), false)];
  for (int s = 0; s < kNumShards; ++s) {
    core_.shards[s]->ReserveChanges(of_shard[s]);
    core_.shards[s]->ReserveEvictions(of_shard[s]);
  }
  OnTier([&] { Queue().Erase(going); });
  for (size_t i = 0; i < going.size(); ++i) core_.ShardFor(going[i]).DroppedBelow(going[i], why[i]);
  below_->rows -= static_cast<int64_t>(going.size());
  return going.size();
}

// Looks at about that many rows below and drops what is to be evicted. True: it came to the end.
bool Table::SweepBelow(size_t rows, bool norms) {
  Queue();
  std::vector<int64_t> keys;
  std::vector<char> blocks;
  const size_t stride = core_.context.layout.stride();
  size_t looked = 0;
  while (looked < rows) {
    if (below_->sweep == nullptr) {
      below_->sweep = OnTier([&] { return below_->chain->Scan(false); });
    }
    if (!OnTier([&] { return below_->sweep->Next(std::min(rows, kScanRows), &keys, &blocks); })) {
      below_->sweep.reset();
      return true;
    }
    looked += keys.size();
    std::vector<int64_t> going;
    const auto reason = [&](const char* row) { return core_.shards[0]->Reason(row, norms); };
    for (size_t i = 0; i < keys.size(); ++i) {
      char* block = blocks.data() + i * stride;
      core_.shards[0]->View(block);
      if (reason(block) != EvictionReason::kNone) going.push_back(keys[i]);
    }
    if (!going.empty()) DropBelow(going, reason);
  }
  return false;
}

void Table::SweepAllBelow(bool norms) {
  if (below_ == nullptr) return;
  PushErased();
  Queue();
  if (below_->rows == 0) return;
  DrainIfPossible();
  const WriteBehind::Waiting waiting = Queue().waiting();
  below_->sweep.reset();
  while (!SweepBelow(kScanRows, norms)) {
  }
  std::vector<int64_t> keys;
  for (const auto& [key, row] : waiting.rows) {
    if (row != nullptr) keys.push_back(key);
  }
  if (keys.empty()) return;
  DropBelow(keys, [&](const char* row) { return core_.shards[0]->Reason(row, norms); });
}

// One step's share. What fails here is tried again: rows that are due are invisible anyway.
void Table::SweepSomeBelow() {
  const Eviction& eviction = core_.context.eviction;
  if (below_->rows == 0 || (eviction.on_trigger && !below_->sweeping)) return;
  const size_t share = static_cast<size_t>(below_->rows) / 4096;
  try {
    const bool ended =
        SweepBelow(std::min(std::max<size_t>(share, 64), kMostSwept), eviction.by_norm());
    below_->sweeping = below_->sweeping && !ended;
  } catch (const std::runtime_error&) {
    ++below_->failed_evictions;
    below_->sweep.reset();
  }
}

// Drops that many rows for the table's capacity: the first, in the order of eviction, of a sample
// of those below. They are colder than those above.
uint64_t Table::CrowdBelow(uint64_t drops) {
  uint64_t dropped = 0;
  bool restarted = false;
  std::vector<int64_t> keys;
  std::vector<char> blocks;
  const size_t stride = core_.context.layout.stride();
  while (dropped < drops && below_->rows > 0) {
    const size_t wanted = 8 * static_cast<size_t>(drops - dropped) + 64;
    std::vector<std::pair<double, int64_t>> offers;
    bool ended = false;
    while (offers.size() < wanted && !ended) {
      if (below_->sweep == nullptr) {
        below_->sweep = OnTier([&] { return below_->chain->Scan(false); });
      }
      ended = !OnTier([&] { return below_->sweep->Next(kScanRows, &keys, &blocks); });
      if (ended) {
        below_->sweep.reset();
        break;
      }
      for (size_t i = 0; i < keys.size(); ++i) {
        if (core_.ShardFor(keys[i]).Holds(keys[i])) continue;
        offers.emplace_back(core_.shards[0]->Standing(blocks.data() + i * stride), keys[i]);
      }
    }
    if (offers.empty()) {
      // The rows may still be on their way down.
      if (restarted) break;
      restarted = true;
      OnTier([&] { Queue().Drain(); });
      continue;
    }
    const size_t going = std::min<size_t>(offers.size(), drops - dropped);
    std::nth_element(offers.begin(), offers.begin() + (going - 1), offers.end());
    std::vector<int64_t> chosen;
    for (size_t i = 0; i < going; ++i) chosen.push_back(offers[i].second);
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    const size_t now = DropBelow(chosen, [](const char*) { return EvictionReason::kCapacity; });
    dropped += now;
    if (now == 0 && ended) break;
  }
  return dropped;
}

// ---------------------------------------------------------------- whole tables

void Table::Flush() {
  Guard::Run(this, [&] {
    if (below_ == nullptr) {
      throw std::invalid_argument(core_.Where("has no tier below host memory to flush to"));
    }
    core_.RequireWrittenBack();
    if (core_.device != nullptr) core_.device->WriteBackAll();
    PushErased();
    // A tier that takes nothing is not offered all rows again with each try.
    OnTier([&] { Queue().Drain(); });
    for (const auto& shard : core_.shards) {
      for (uint32_t place = 0; place != Index::kNone;) {
        std::vector<int64_t> keys;
        std::vector<char> blocks;
        place = shard->CopyDown(place, Below::kPartRows, &keys, &blocks);
        Overtake(keys);
        OnTier([&] { Queue().Write(std::move(keys), std::move(blocks)); });
      }
    }
    OnTier([&] { Queue().Flush(); });
    DrainStale();  // or the next run might find what this one has left behind
  });
}

// All keys of a static table have changed, those that were never looked up too.
void Table::NoteVocabulary() {
  if (!core_.context.is_static() || core_.oldest_mark == 0) return;
  for (int64_t key = 0; key < core_.config.vocabulary; ++key) core_.ShardFor(key).NoteDeleted(key);
}

// Rows below in the new layout, with fresh optimizer state as those above get; in tiers of another
// generation, beside those there are, which stay as they are.
Table::Relaid Table::RelayBelow(const RowLayout& layout) {
  Relaid relaid;
  if (below_ == nullptr || below_->queue == nullptr) return relaid;
  DrainStale();  // of this generation too, where an attempt has failed
  below_->stale.reserve(2);
  relaid.chain = OpenChain(below_->generation + 1, layout.stride());
  relaid.queue = std::make_shared<WriteBehind>(relaid.chain, Below::kQueueBytes);
  try {
    TierChain& fresh = *relaid.chain;
    OnTier([&] { fresh.Clear(); });
    WalkBelow([&](KeyedRows& rows) {
      std::vector<int64_t> keys;
      std::vector<char> blocks(rows.size() * layout.stride());
      for (size_t i = 0; i < rows.size(); ++i) {
        core_.shards[0]->Relay(rows[i].second, layout, blocks.data() + i * layout.stride());
        keys.push_back(rows[i].first);
      }
      OnTier([&] { fresh.Write(keys.data(), keys.size(), blocks.data()); });
      relaid.rows += static_cast<int64_t>(keys.size());
      if (core_.oldest_mark != 0) relaid.keys.insert(relaid.keys.end(), keys.begin(), keys.end());
    });
  } catch (const std::exception&) {
    DropStale(std::move(relaid.queue));
    throw;
  }
  return relaid;
}

// Takes them. Gives the queue before, whose rows nobody reads from now on.
std::shared_ptr<WriteBehind> Table::AdoptBelow(Relaid relaid) noexcept {
  if (below_ == nullptr) return nullptr;
  NoteVocabulary();
  if (relaid.queue == nullptr) return nullptr;
  for (const int64_t key : relaid.keys) core_.ShardFor(key).NoteDeleted(key);
  below_->sweep.reset();
  below_->queue.swap(relaid.queue);
  below_->chain.swap(relaid.chain);
  below_->rows = relaid.rows;
  ++below_->generation;
  for (const auto& shard : core_.shards) shard->ForgetCopies();
  for (auto& [number, fetch] : below_->fetches) fetch->cancelled = true;
  return std::move(relaid.queue);
}

// Clears tiers that the table has left. Where they cannot be now, that is tried again by the
// queue's own thread, by Flush, before the next layout and by Close, and costs no more than space
// until then: this table never opens a generation twice while rows are in it, so it cannot read
// them, and a later run finds them only if this one ends without a Flush, which fails as long as
// they are there.
void Table::DropStale(std::shared_ptr<WriteBehind> queue) {
  if (queue == nullptr) return;
  below_->stale.push_back(std::move(queue));  // RelayBelow made room
  try {
    DrainStale();
  } catch (const std::exception&) {
  }
}

void Table::DrainStale() {
  while (below_ != nullptr && !below_->stale.empty()) {
    WriteBehind& queue = *below_->stale.back();
    OnTier([&] {
      queue.Clear();
      queue.Drain();
    });
    below_->stale.pop_back();
  }
}

// Last in this may fail; from then on all rows below are gone.
void Table::ClearBelow() {
  std::vector<int64_t> keys;
  if (below_ != nullptr) Queue();
  if (below_ != nullptr && core_.oldest_mark != 0) {
    WalkBelow([&](KeyedRows& rows) {
      for (const auto& each : rows) keys.push_back(each.first);
    });
  }
  core_.ReserveChanges(keys, true);
  if (below_ == nullptr) return;
  Queue().Clear();
  NoteVocabulary();
  for (const int64_t key : keys) core_.ShardFor(key).NoteDeleted(key);
  below_->sweep.reset();
  for (auto& [number, fetch] : below_->fetches) fetch->cancelled = true;
  below_->rows = 0;
}

}  // namespace msrec
