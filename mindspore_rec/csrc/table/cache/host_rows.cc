// SPDX-License-Identifier: Apache-2.0
#include "table/cache/host_rows.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>

#include "rows/for_shards.h"
#include "table/core/row_sizes.h"
#include "table/core/victims.h"
#include "util/headroom.h"

namespace msrec {
namespace {

// A capacity is filled in parts of a quarter of it, so that rows can be demoted between them.
constexpr int64_t kParts = 4;

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

int64_t HostRows::Capacity() const {
  const CacheSettings& settings = tiers_.settings();
  if (settings.host_rows >= 0) return settings.host_rows;
  const auto row_bytes = static_cast<int64_t>(RowSizes(core_.context.layout).in_host(true));
  return std::max<int64_t>(settings.host_bytes / row_bytes, 1);
}

size_t HostRows::PartKeys() const {
  return static_cast<size_t>(std::max<int64_t>(Capacity() / kParts, 1));
}

// ---------------------------------------------------------------- demote

size_t HostRows::Demote(size_t rows, bool prefetched) {
  const bool by_count = tiers_.settings().by_count;
  DeviceRows* const device = core_.device;
  VictimCandidates victims =
      SampleCandidates(core_, rows, [&](Shard* shard, size_t n, VictimCandidates* candidates) {
        shard->DemotionCandidates(n, by_count, prefetched, candidates);
      });
  if (device != nullptr && !device->shared()) {
    // Rows whose newest values are in memory of the device stay in the host.
    victims.erase(std::remove_if(victims.begin(), victims.end(),
                                 [&](const VictimCandidate& each) {
                                   const int64_t key = core_.shards[each.shard]->KeyAt(each.place);
                                   return device->Find(key) != SlotMap::kNone;
                                 }),
                  victims.end());
  }
  SelectVictims(rows, &victims);
  const size_t demoted = victims.size();
  if (demoted == 0) return 0;
  std::sort(victims.begin(), victims.end(), [](const VictimCandidate& a, const VictimCandidate& b) {
    return std::tie(a.shard, a.place) < std::tie(b.shard, b.place);
  });
  tiers_.EraseDeparted();
  for (size_t first = 0; first < demoted; first += LowerTiers::kPartRows) {
    const size_t last = std::min(demoted, first + LowerTiers::kPartRows);
    std::vector<int64_t> keys;
    std::vector<char> blocks;
    keys.reserve(last - first);
    blocks.reserve((last - first) * core_.context.layout.stride());
    for (size_t i = first; i < last; ++i) {
      Shard& shard = *core_.shards[victims[i].shard];
      if (device != nullptr) {
        device->WriteBackAndForget(victims[i].shard, shard.KeyAt(victims[i].place));
      }
      shard.CopyRow(victims[i].place, &keys, &blocks);
    }
    tiers_.Write(std::move(keys), std::move(blocks));
    // The queue has them, and from here on nothing can fail.
    for (size_t i = first; i < last; ++i) {
      core_.shards[victims[i].shard]->FreeDemoted(victims[i].place);
    }
    tiers_.AddRows(static_cast<int64_t>(last - first));
    stats_.demoted += last - first;
  }
  return demoted;
}

size_t HostRows::MakeRoom(size_t rows, bool prefetching) {
  const int64_t capacity = Capacity();
  const auto over = [&] {
    return static_cast<int64_t>(core_.Rows()) + static_cast<int64_t>(rows) - capacity;
  };
  for (const bool prefetched : {false, true}) {
    if (prefetched && prefetching) break;
    while (over() > 0 && Demote(static_cast<size_t>(over()), prefetched) > 0) {
    }
  }
  const int64_t still = over();
  if (still <= 0) return rows;
  if (prefetching) {
    return static_cast<size_t>(std::max<int64_t>(static_cast<int64_t>(rows) - still, 0));
  }
  const int64_t least = capacity + still;
  const bool by_rows = tiers_.settings().host_rows >= 0;
  const auto row_bytes = static_cast<int64_t>(RowSizes(core_.context.layout).in_host(true));
  throw std::invalid_argument(
      core_.Where((by_rows ? "host_rows=" + std::to_string(capacity)
                           : "host_bytes=" + std::to_string(tiers_.settings().host_bytes) + " (" +
                                 std::to_string(capacity) + " rows)") +
                  " is too small for the distinct keys of one step; the least that works is " +
                  (by_rows ? std::to_string(least) : std::to_string(least * row_bytes))));
}

// ---------------------------------------------------------------- promote

std::vector<int64_t> HostRows::AbsentKeys(const Batch& batch, const PendingRows& pending,
                                          const std::vector<uint32_t>* missing,
                                          const std::vector<uint32_t>& at, const bool* found) {
  std::vector<int64_t> absent = pending.absent;
  size_t next = 0;  // `at` has some of the missing, in their order
  for (int s = 0; s < kNumShards; ++s) {
    for (const uint32_t i : missing[s]) {
      const bool read = next < at.size() && at[next] == i;
      if (!(read && found[next])) absent.push_back(batch.key[i]);
      next += read;
    }
  }
  if (!pending.absent.empty()) {  // or they are distinct
    std::sort(absent.begin(), absent.end());
    absent.erase(std::unique(absent.begin(), absent.end()), absent.end());
  }
  return absent;
}

void HostRows::Promote(Batch* batch, LookupPurpose purpose, PendingRows* pending) {
  const bool reads = purpose == LookupPurpose::kEvaluate;
  const bool trains = purpose == LookupPurpose::kTrain;
  bool replaces = purpose == LookupPurpose::kReplace;
  const Hold hold = HoldFor(purpose);
  std::vector<uint32_t> missing[kNumShards];
  ForShards(*batch, [&](int s) {
    if (!batch->made_unique) batch->MakeUnique(s);
    core_.shards[s]->FindInHost(batch, hold, 0, &missing[s]);
  });
  batch->probed = true;
  std::vector<uint32_t> at;
  std::vector<int64_t> keys;
  size_t all_missing = 0;
  size_t looked_up = 0;
  const bool fetched = !tiers_.fetches().empty();
  for (int s = 0; s < kNumShards; ++s) {
    if (batch->begin[s + 1] == batch->begin[s]) continue;
    looked_up += batch->unique[s];
    all_missing += missing[s].size();
    for (const uint32_t i : missing[s]) {
      if (fetched && tiers_.fetches().KnownAbsent(batch->key[i])) continue;
      at.push_back(i);
      keys.push_back(batch->key[i]);
    }
  }
  std::vector<char> rows;
  std::unique_ptr<bool[]> found;
  {
    double other = 0.0;
    double* const seconds =
        trains ? &stats_.lookup_wait : (reads ? &stats_.evaluation_wait : &other);
    const Stopwatch watch(seconds);
    if (replaces && core_.KeepsDigest()) {
      // A row that is replaced leaves the digest, so it is read first.
      try {
        tiers_.Read(keys, &rows, &found);
        replaces = false;
      } catch (const RowDamaged&) {
        core_.DropDigest();  // to replace such a row is how it is mended
      }
    }
    if (replaces || found == nullptr) tiers_.Read(keys, replaces ? nullptr : &rows, &found);
  }
  if (reads) {
    stats_.evaluated += looked_up;
    stats_.read_in_host += looked_up - all_missing;
    stats_.read_below +=
        static_cast<uint64_t>(std::count(found.get(), found.get() + at.size(), true));
    ReadThrough(batch, missing, at, rows, found.get());
    return;
  }
  if (trains) {
    stats_.looked_up += looked_up;
    stats_.hits += looked_up - all_missing;
  }
  std::vector<int64_t> absent;
  size_t needed = all_missing;
  if (pending != nullptr) {
    absent = AbsentKeys(*batch, *pending, missing, at, found.get());
    needed =
        absent.size() + static_cast<size_t>(std::count(found.get(), found.get() + at.size(), true));
  }
  MakeRoom(needed, false);
  for (int s = 0; s < kNumShards; ++s) {
    const size_t before = pending == nullptr ? 0 : pending->keys[s];
    core_.shards[s]->Reserve(before + missing[s].size());
    core_.shards[s]->ReserveNotes(before +
                                  (batch->begin[s + 1] == batch->begin[s] ? 0 : batch->unique[s]));
  }
  RequireHeadroom(HeadroomForKeys(all_missing));
  if (pending != nullptr) pending->absent.swap(absent);
  const size_t stride = core_.context.layout.stride();
  size_t j = 0;
  try {
    for (; j < at.size(); ++j) {
      if (!found[j]) continue;
      Shard& shard = core_.ShardFor(keys[j]);
      batch->row[at[j]] = replaces ? shard.PromoteBlank(keys[j], hold)
                                   : shard.Promote(rows.data() + j * stride, hold, 0);
      tiers_.AddRows(-1);
      stats_.misses += trains;
    }
  } catch (...) {
    // Rows that were promoted may stay in host memory, but not without their contents.
    while (replaces && j-- > 0) {
      if (!found[j]) continue;
      core_.ShardFor(keys[j]).UndoPromoteBlank(keys[j]);
      tiers_.AddRows(1);
    }
    throw;
  }
}

void HostRows::ReadThrough(Batch* batch, const std::vector<uint32_t>* missing,
                           const std::vector<uint32_t>& at, const std::vector<char>& rows,
                           const bool* found) {
  const size_t stride = core_.context.layout.stride();
  const bool is_static = core_.context.is_static();
  size_t copies = 0;
  for (size_t j = 0; j < at.size(); ++j) copies += found[j];
  if (is_static) {
    copies = 0;
    for (int s = 0; s < kNumShards; ++s) copies += missing[s].size();
  }
  char* next = batch->copies.Reset(copies * stride);
  for (size_t j = 0; j < at.size(); ++j) {
    if (!found[j]) continue;
    std::memcpy(next, rows.data() + j * stride, stride);
    const char* row = core_.ShardFor(batch->key[at[j]]).ReadThrough(next);
    batch->row[at[j]] = const_cast<char*>(row);
    if (row != nullptr) next += stride;  // one that is due leaves its place to the next
  }
  for (int s = 0; is_static && s < kNumShards; ++s) {
    for (const uint32_t i : missing[s]) {
      if (batch->row[i] != nullptr) continue;
      core_.shards[s]->FirstRow(next, batch->key[i]);
      batch->row[i] = next;
      next += stride;
    }
  }
}

}  // namespace msrec
