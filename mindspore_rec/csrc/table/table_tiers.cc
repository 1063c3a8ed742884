// SPDX-License-Identifier: Apache-2.0
//
// Table: rows that come up from the tiers below and go down (below.h says how).
#include <algorithm>
#include <chrono>
#include <cstring>

#include "table/for_shards.h"
#include "table/table_guard.h"
#include "util/headroom.h"

namespace msrec {
namespace {

constexpr size_t kIndexBytes = 12;  // of the index and the pin, a row
// A capacity is filled in pieces of a quarter of it, so that rows can go down between them.
constexpr int64_t kPieces = 4;

class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    *seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  double* seconds_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

// ---------------------------------------------------------------- opening

void Table::SetCache(CacheSettings settings) {
  Guard::Run(this, [&] {
    const auto refuse = [&](const std::string& what) {
      throw std::invalid_argument(core_.Where(what));
    };
    if (below_ != nullptr) refuse("has a cache already");
    if (settings.levels.empty()) refuse("a cache needs a tier below host memory");
    if ((settings.host_rows >= 0) == (settings.host_bytes >= 0)) {
      refuse("a cache needs one of host_rows and host_bytes");
    }
    if (settings.host_rows == 0 || settings.host_bytes == 0) {
      refuse("host_rows and host_bytes must be >= 1");
    }
    for (size_t i = 0; i < settings.levels.size(); ++i) {
      const bool last = i + 1 == settings.levels.size();
      if (last && settings.levels[i].max_rows >= 0) {
        refuse("the last tier cannot have a row limit: nothing is below it");
      }
    }
    size_t seen = 0;
    for (const auto& shard : core_.shards) {
      seen += core_.context.identity() ? shard->stats().inserted : shard->size();
    }
    if (seen > 0 || core_.epoch > 0) refuse("a cache must be given before the table has rows");
    core_.context.tiered = true;
    try {
      std::vector<std::unique_ptr<Shard>> shards;
      for (int s = 0; s < kNumShards; ++s)
        shards.push_back(std::make_unique<Shard>(&core_.context, s));
      below_ = std::make_unique<Below>();
      below_->settings = std::move(settings);
      core_.shards.swap(shards);
    } catch (...) {
      core_.context.tiered = false;
      below_.reset();
      throw;
    }
    core_.context.pins.step = below_->NextSerial();
  });
}

std::shared_ptr<TierChain> Table::OpenChain(int generation, size_t row_bytes) {
  std::vector<TierChain::Level> levels;
  for (const LevelConfig& level : below_->settings.levels) {
    std::shared_ptr<Tier> tier = OnTier([&] { return level.open(row_bytes, generation); });
    if (tier->row_bytes() != row_bytes) {
      throw std::runtime_error(core_.Where(
          "its " + level.kind + " tier has rows of " + std::to_string(tier->row_bytes()) +
          " bytes, the table has rows of " + std::to_string(row_bytes)));
    }
    levels.push_back({level.kind, std::move(tier), level.max_rows});
  }
  return std::make_shared<TierChain>(std::move(levels));
}

WriteBehind& Table::Queue() {
  if (below_->queue == nullptr) {
    auto chain = OpenChain(below_->generation, core_.context.layout.stride());
    OnTier([&] { chain->Settle(); });
    below_->queue =
        OnTier([&] { return std::make_shared<WriteBehind>(chain, Below::kQueueBytes); });
    below_->rows = static_cast<int64_t>(chain->size());
    below_->chain = std::move(chain);
  }
  return *below_->queue;
}

// ---------------------------------------------------------------- down

void Table::Overtake(const std::vector<int64_t>& keys) {
  for (auto& [number, fetch] : below_->fetches) {
    fetch->overtaken.insert(fetch->overtaken.end(), keys.begin(), keys.end());
  }
}

// Before anything is read from below or written there: the copies of rows that have left the table.
void Table::PushErased() {
  std::vector<int64_t> keys;
  for (const auto& shard : core_.shards) {
    keys.insert(keys.end(), shard->erased().begin(), shard->erased().end());
  }
  if (keys.empty()) return;
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  Overtake(keys);
  OnTier([&] { Queue().Erase(keys); });
  // Only now: where the queue is full and the tier takes nothing, they are still to be erased.
  for (const auto& shard : core_.shards) shard->ForgetErased();
}

int64_t Table::HostCapacity() const {
  const CacheSettings& settings = below_->settings;
  if (settings.host_rows >= 0) return settings.host_rows;
  const auto row_bytes = static_cast<int64_t>(core_.context.layout.stride() + kIndexBytes);
  return std::max<int64_t>(settings.host_bytes / row_bytes, 1);
}

// Writes down about that many rows, the first in the order of the policy; how many it were.
size_t Table::LowerSome(size_t rows, bool prefetched) {
  const bool by_count = below_->settings.by_count;
  std::vector<Offer> all = Offers(rows, [&](Shard* shard, size_t n, std::vector<Offer>* offers) {
    shard->OfferDown(n, by_count, prefetched, offers);
  });
  if (core_.device != nullptr && !core_.device->shared()) {
    // What is out of the host's reach keeps its place.
    all.erase(std::remove_if(all.begin(), all.end(),
                             [&](const Offer& offer) {
                               const int64_t key = core_.shards[offer.shard]->KeyAt(offer.place);
                               return core_.device->Find(key) != SlotMap::kNone;
                             }),
              all.end());
  }
  KeepFirst(rows, &all);
  const size_t going = all.size();
  if (going == 0) return 0;
  std::sort(all.begin(), all.end(), [](const Offer& a, const Offer& b) {
    return std::tie(a.shard, a.place) < std::tie(b.shard, b.place);
  });
  PushErased();
  for (size_t first = 0; first < going; first += Below::kPartRows) {
    const size_t last = std::min(going, first + Below::kPartRows);
    std::vector<int64_t> keys;
    std::vector<char> blocks;
    keys.reserve(last - first);
    blocks.reserve((last - first) * core_.context.layout.stride());
    for (size_t i = first; i < last; ++i) {
      if (core_.device != nullptr) {
        core_.device->WriteBackAndForget(all[i].shard,
                                         core_.shards[all[i].shard]->KeyAt(all[i].place));
      }
      core_.shards[all[i].shard]->CopyOne(all[i].place, &keys, &blocks);
    }
    Overtake(keys);
    OnTier([&] { Queue().Write(std::move(keys), std::move(blocks)); });
    // They are safe now, and nothing below can fail.
    for (size_t i = first; i < last; ++i) core_.shards[all[i].shard]->Leave(all[i].place);
    below_->rows += static_cast<int64_t>(last - first);
    below_->written_down += last - first;
  }
  return going;
}

// Makes room for that many more rows in host memory, and returns for how many there is: fewer than
// asked only when prefetching, which must not push out what is needed earlier.
size_t Table::MakeRoom(size_t rows, bool prefetching) {
  const int64_t capacity = HostCapacity();
  const auto over = [&] {
    return static_cast<int64_t>(core_.Rows()) + static_cast<int64_t>(rows) - capacity;
  };
  for (const bool prefetched : {false, true}) {
    if (prefetched && prefetching) break;
    while (over() > 0 && LowerSome(static_cast<size_t>(over()), prefetched) > 0) {
    }
  }
  const int64_t still = over();
  if (still <= 0) return rows;
  if (prefetching)
    return static_cast<size_t>(std::max<int64_t>(static_cast<int64_t>(rows) - still, 0));
  const int64_t least = capacity + still;
  const bool by_rows = below_->settings.host_rows >= 0;
  const auto row_bytes = static_cast<int64_t>(core_.context.layout.stride() + kIndexBytes);
  throw std::invalid_argument(
      core_.Where((by_rows ? "host_rows=" + std::to_string(capacity)
                           : "host_bytes=" + std::to_string(below_->settings.host_bytes) + " (" +
                                 std::to_string(capacity) + " rows)") +
                  " is too small for the distinct keys of one step; the least that works is " +
                  (by_rows ? std::to_string(least) : std::to_string(least * row_bytes))));
}

// ---------------------------------------------------------------- up

bool Table::KnownAbsent(int64_t key) const {
  for (const auto& [number, fetch] : below_->fetches) {
    if (!fetch->ready || fetch->cancelled) continue;
    if (!std::binary_search(fetch->absent.begin(), fetch->absent.end(), key)) continue;
    if (!fetch->Overtaken(key)) return true;
  }
  return false;
}

void Table::ReadBelow(const std::vector<int64_t>& keys, std::vector<char>* rows,
                      std::unique_ptr<bool[]>* found) {
  PushErased();
  WriteBehind& queue = Queue();
  found->reset(new bool[keys.size()]());
  if (rows != nullptr) rows->resize(keys.size() * core_.context.layout.stride());
  if (below_->rows == 0 || keys.empty()) return;
  OnTier([&] {
    if (rows == nullptr) {
      queue.Contains(keys.data(), keys.size(), found->get());
    } else {
      queue.Read(keys.data(), keys.size(), rows->data(), found->get());
    }
  });
}

// First part of Resolve where there are tiers: makes the batch unique, finds its rows, and brings
// up those below; what is only read is shown to this batch alone.
void Table::BringUp(Batch* batch, Purpose purpose) {
  const bool reads = purpose == Purpose::kRead;
  std::vector<uint32_t> missing[kNumShards];
  ForShards(*batch, [&](int s) {
    if (!batch->made_unique) batch->MakeUnique(s);
    core_.shards[s]->PinPresent(batch, reads ? Hold::kNone : Hold::kUse, 0, &missing[s]);
  });
  batch->probed = true;
  std::vector<uint32_t> at;
  std::vector<int64_t> keys;
  size_t all_missing = 0;
  size_t asked = 0;
  const bool fetched = !below_->fetches.empty();
  for (int s = 0; s < kNumShards; ++s) {
    if (batch->begin[s + 1] == batch->begin[s]) continue;
    asked += batch->unique[s];
    all_missing += missing[s].size();
    for (const uint32_t i : missing[s]) {
      if (fetched && KnownAbsent(batch->key[i])) continue;
      at.push_back(i);
      keys.push_back(batch->key[i]);
    }
  }
  std::vector<char> rows;
  std::unique_ptr<bool[]> found;
  {
    double other = 0.0;
    const Stopwatch watch(!reads && core_.context.pins.call == 0 ? &below_->lookup_wait : &other);
    ReadBelow(keys, purpose == Purpose::kReplace ? nullptr : &rows, &found);
  }
  if (reads) {
    Visit(batch, missing, at, rows, found.get());
    return;
  }
  const bool lookup = core_.context.pins.call == 0;
  if (lookup) {
    below_->asked += asked;
    below_->host_hits += asked - all_missing;
  }
  MakeRoom(all_missing, false);
  for (int s = 0; s < kNumShards; ++s) {
    core_.shards[s]->Reserve(missing[s].size());
    core_.shards[s]->ReserveNotes(batch->begin[s + 1] == batch->begin[s] ? 0 : batch->unique[s]);
  }
  RequireHeadroom(HeadroomForKeys(all_missing));
  const size_t stride = core_.context.layout.stride();
  size_t j = 0;
  try {
    for (; j < at.size(); ++j) {
      if (!found[j]) continue;
      Shard& shard = core_.ShardFor(keys[j]);
      batch->row[at[j]] = purpose == Purpose::kReplace
                              ? shard.BringUpBlank(keys[j])
                              : shard.BringUp(rows.data() + j * stride, Hold::kUse, 0);
      --below_->rows;
      below_->host_misses += lookup;
    }
  } catch (...) {
    // Rows that came up may stay up, but not without their contents.
    while (purpose == Purpose::kReplace && j-- > 0) {
      if (!found[j]) continue;
      core_.ShardFor(keys[j]).PutBack(keys[j]);
      ++below_->rows;
    }
    throw;
  }
}

// Evaluation: rows below are seen by this batch and stay where they are.
void Table::Visit(Batch* batch, const std::vector<uint32_t>* missing,
                  const std::vector<uint32_t>& at, const std::vector<char>& rows,
                  const bool* found) {
  const size_t stride = core_.context.layout.stride();
  size_t visitors = 0;
  for (size_t j = 0; j < at.size(); ++j) visitors += found[j];
  if (core_.context.is_static()) {
    visitors = 0;
    for (int s = 0; s < kNumShards; ++s) visitors += missing[s].size();
  }
  char* next = batch->visitors.Reset(visitors * stride);
  for (size_t j = 0; j < at.size(); ++j) {
    if (!found[j]) continue;
    std::memcpy(next, rows.data() + j * stride, stride);
    batch->row[at[j]] = const_cast<char*>(core_.ShardFor(batch->key[at[j]]).View(next));
    next += stride;
  }
  for (int s = 0; core_.context.is_static() && s < kNumShards; ++s) {
    for (const uint32_t i : missing[s]) {
      if (batch->row[i] != nullptr) continue;
      core_.shards[s]->FreshBlock(next, batch->key[i]);
      batch->row[i] = next;
      next += stride;
    }
  }
}

Table::KeyedRows Table::RowsOf(const IdView& keys, std::vector<char>* visitors) {
  KeyedRows rows;
  rows.reserve(keys.size);
  std::vector<int64_t> missing;
  core_.RequireWrittenBack();
  for (size_t i = 0; core_.device != nullptr && i < keys.size; ++i)
    core_.device->WriteBack(keys[i]);
  for (size_t i = 0; i < keys.size; ++i) {
    rows.emplace_back(keys[i], core_.ShardFor(keys[i]).Find(keys[i]));
    if (rows.back().second == nullptr && core_.context.tiered) {
      // One that is here and due is not below: its copy there is older.
      if (!core_.ShardFor(keys[i]).Holds(keys[i])) missing.push_back(keys[i]);
    }
  }
  if (missing.empty()) return rows;
  std::unique_ptr<bool[]> found;
  ReadBelow(missing, visitors, &found);
  const size_t stride = core_.context.layout.stride();
  size_t next = 0;
  for (auto& [key, row] : rows) {
    if (next == missing.size() || row != nullptr || key != missing[next]) continue;
    char* block = visitors->data() + next * stride;
    Shard& shard = core_.ShardFor(key);
    if (found[next]) {
      row = shard.View(block);
    } else if (core_.context.is_static()) {
      shard.FreshBlock(block, key);
      row = block;
    }
    ++next;
  }
  return rows;
}

// ---------------------------------------------------------------- in pieces

// Each block is done as a whole, or not at all. All of them would need more memory than the host
// may take, so where one fails the message says how far it came: the blocks are in the order of
// ids.
void Table::ForEachBlock(const IdView& ids, const char* what, const char* done,
                         const std::function<void(const IdView&, size_t)>& fn) {
  const auto block = below_ == nullptr
                         ? ids.size
                         : static_cast<size_t>(std::max<int64_t>(HostCapacity() / kPieces, 1));
  for (size_t first = 0; first < ids.size; first += block) {
    IdView some = ids;
    const size_t width = ids.is_int64 ? sizeof(int64_t) : sizeof(int32_t);
    some.data = static_cast<const char*>(ids.data) + first * ids.stride * width;
    some.size = std::min(block, ids.size - first);
    const auto so_far = [&](const std::string& error) {
      return error + "; of the " + std::to_string(ids.size) + " " + what + ", the first " +
             std::to_string(first) + " were " + done + ", the others were not";
    };
    try {
      fn(some, first);
    } catch (const std::bad_alloc&) {
      if (first == 0) throw;
      throw OutOfMemory(so_far(core_.Where("out of memory")));
    } catch (const std::invalid_argument& error) {
      if (first == 0) throw;
      throw std::invalid_argument(so_far(error.what()));
    } catch (const std::runtime_error& error) {
      if (first == 0) throw;
      throw std::runtime_error(so_far(error.what()));
    }
  }
}

}  // namespace msrec
