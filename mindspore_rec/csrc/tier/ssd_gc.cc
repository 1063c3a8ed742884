// SPDX-License-Identifier: Apache-2.0
//
// Garbage collection of an SsdTier. The live rows of a collected segment are appended to the log in
// the same way as new rows, so in the log, a newer version of a row always follows an older
// version. After the appended rows are synced, the segment is deleted from the manifest, and the
// segment's file is removed.
//
// A tombstone must stay as long as the disk may have an older row of the tombstone's key. Let S be
// the segment in which an erasure was first written. The tombstone can be removed when each segment
// from the first to S is removed or has no dead record. A tombstone is unnecessary if its key has
// been written again, because the new record hides older records of the key. The new record is
// synced before the tombstone is removed.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tier/ssd_tier.h"
#include "util/background.h"

namespace msrec {
namespace {

constexpr size_t kBatch = 2048;  // rows moved at a time, between which writers get their turn
constexpr size_t kBatchBytes = size_t{8} << 20;  // and no more than this, where rows are large
constexpr uint64_t kLeastGain = 16;              // a segment is worth collecting from 1/16 dead on

}  // namespace

// Garbage is collected if the number of records exceeds gc_ratio * (number of live rows) + (records
// per segment). The term "records per segment" prevents garbage collection in a tier with few rows.
// Writers wait if the log exceeds the limit for garbage collection by about 8 % plus two segments.
bool SsdTier::ShouldCollect() const {
  if (space_waiters_ > 0) return true;
  if (Paused()) return false;
  const double live = static_cast<double>(index_.size());
  const bool long_log = static_cast<double>(used_slots_) >
                        options_.gc_ratio * live + static_cast<double>(slots_per_segment_);
  return long_log || segment_count_ > 32 + 2 * used_slots_ / slots_per_segment_;
}

bool SsdTier::FarBehind() const {
  const double live = static_cast<double>(index_.size());
  return static_cast<double>(used_slots_) >
         1.08 * options_.gc_ratio * live + 3.0 * static_cast<double>(slots_per_segment_);
}

std::shared_ptr<Segment> SsdTier::PickVictim(bool urgent) const {
  // Find the two oldest segments with dead records. As long as an old segment has dead records,
  // later segments must keep tombstones.
  uint64_t oldest = ~uint64_t{0}, second = ~uint64_t{0};
  for (const auto& s : *segments_) {
    if (s == nullptr) continue;
    if (s->dead() == 0) continue;
    if (s->id() < oldest) {
      second = oldest;
      oldest = s->id();
    } else if (s->id() < second) {
      second = s->id();
    }
  }
  std::shared_ptr<Segment> best, smallest;
  double best_gain = 0;
  for (const auto& s : *segments_) {
    if (s == nullptr || !s->sealed || s->damaged) continue;
    if (smallest == nullptr || s->slots < smallest->slots) smallest = s;
    const uint64_t older = s->id() == oldest ? second : oldest;
    const uint64_t keep = s->live + (older < s->id() ? s->tombstone_slots : 0);
    const uint64_t gain = s->slots - keep;
    if (gain * kLeastGain < s->slots) continue;
    const double share = static_cast<double>(gain + 1) / static_cast<double>(s->slots + 1);
    if (share > best_gain) {
      best_gain = share;
      best = s;
    }
  }
  // If repeated openings have left many short segments, collect the shortest segment.
  if (best == nullptr && !urgent && segment_count_ > 32 + 2 * used_slots_ / slots_per_segment_) {
    return smallest;
  }
  return best;
}

void SsdTier::CollectorMain() {
  YieldToOperators();
  std::unique_lock<std::mutex> lock(state_mutex_);
  while (!stop_) {
    const std::shared_ptr<Segment> victim =
        ShouldCollect() ? PickVictim(space_waiters_ > 0) : nullptr;
    if (victim == nullptr) {
      collected_.notify_all();
      wake_collector_.wait(lock);
      continue;
    }
    collecting_ = true;
    lock.unlock();
    std::string error;
    bool failed = false;
    bool damaged = false;
    try {
      Collect(victim, true);
    } catch (const Corruption& e) {
      damaged = true;
      error = e.what();
    } catch (const std::exception& e) {
      failed = true;
      error = e.what();
    }
    lock.lock();
    collecting_ = false;
    gc_failed_ = failed;
    if (failed || damaged) gc_error_ = error;
    if (damaged) victim->damaged = true;
    if (!failed && !damaged && stats_.damaged_segments == 0) gc_error_.clear();
    collected_.notify_all();
    // Wait before the next attempt, because each attempt takes time, and the disk may recover
    // during the wait.
    if (failed && !stop_) wake_collector_.wait_for(lock, std::chrono::seconds(1));
  }
  collected_.notify_all();
}

void SsdTier::WaitForCollector() {
  std::unique_lock<std::mutex> lock(state_mutex_);
  if (options_.read_only || !options_.background_gc || !FarBehind()) return;
  const auto start = std::chrono::steady_clock::now();
  ++throttled_writers_;
  while (FarBehind() && !stop_ && !gc_failed_ && (collecting_ || PickVictim(false) != nullptr)) {
    wake_collector_.notify_one();
    collected_.wait(lock);
  }
  --throttled_writers_;
  stats_.throttled += std::chrono::steady_clock::now() - start;
}

void SsdTier::WaitForSpace() {
  std::unique_lock<std::mutex> lock(state_mutex_);
  ++space_waiters_;
  while (!HasSpace(kSpareForWrite) && !stop_ && !gc_failed_) {
    const std::shared_ptr<Segment> victim = collecting_ ? nullptr : PickVictim(true);
    if (!collecting_ && victim == nullptr) break;
    if (options_.background_gc) {
      wake_collector_.notify_one();
      collected_.wait(lock);
      continue;
    }
    lock.unlock();
    try {
      Collect(victim, false);
    } catch (...) {
      lock.lock();
      --space_waiters_;
      throw;
    }
    lock.lock();
  }
  --space_waiters_;
  if (stop_) throw IoError(EBADF, "closed:", options_.path);
  if (HasSpace(kSpareForWrite)) return;
  throw IoError(ENOSPC,
                "max_bytes = " + std::to_string(options_.max_bytes) + " is used up by " +
                    std::to_string(index_.size()) + " rows" +
                    (gc_error_.empty() ? "" : " (garbage collection failed: " + gc_error_ + ")") +
                    ":",
                options_.path);
}

void SsdTier::Collect(const std::shared_ptr<Segment>& victim, bool background) {
  const std::lock_guard<std::mutex> collecting(collect_mutex_);
  size_t ordinal = 0;
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    if (background && Paused()) return;
    while (ordinal < segments_->size() && (*segments_)[ordinal] != victim) ++ordinal;
    if (ordinal == segments_->size()) return;  // somebody else has
  }
  const SegmentKeys keys = victim->LoadKeys(victim->slots);
  CollectRows(*victim, ordinal, keys);
  CollectTombstones(*victim, keys);
  const std::lock_guard<std::mutex> writing(write_mutex_);
  if (victim->live != 0) {
    throw Corruption("the footer does not list all rows of the segment", victim->file().path(),
                     victim->OffsetOf(victim->slots));
  }
  FlushLocked();
  RemoveSegment(victim);
}

void SsdTier::CollectRows(const Segment& victim, size_t ordinal, const SegmentKeys& keys) {
  std::vector<int64_t> batch;
  std::vector<uint64_t> slots;
  const size_t most =
      std::min(kBatch, std::max<size_t>(1, kBatchBytes / std::max<size_t>(1, shape_.row_bytes)));
  std::vector<char> rows(most * shape_.row_bytes);
  const auto move_batch = [&] {
    for (size_t i = 0; i < batch.size();) {
      const std::lock_guard<std::mutex> lock(write_mutex_);
      if (!MakeRoom(kSpareForCollect)) {
        throw IoError(ENOSPC, "max_bytes leaves no room to collect garbage in", options_.path);
      }
      // Drop records of the batch that were overwritten or erased after they were read.
      const size_t room = std::min(head_->room(), batch.size() - i);
      size_t kept = i;
      for (size_t j = i; j < i + room; ++j) {
        if (index_.Find(batch[j]) != PositionOf(ordinal, slots[j])) continue;
        if (kept != j) {
          batch[kept] = batch[j];
          std::memcpy(&rows[kept * shape_.row_bytes], &rows[j * shape_.row_bytes],
                      shape_.row_bytes);
        }
        ++kept;
      }
      AppendRows(&batch[i], kept - i, &rows[i * shape_.row_bytes], &stats_.gc_bytes);
      i += room;
    }
    batch.clear();
    slots.clear();
  };
  std::vector<bool> live(victim.slots);
  for (size_t begin = 0; begin < live.size(); begin += kBatch) {
    const size_t end = std::min(live.size(), begin + kBatch);
    const std::lock_guard<std::mutex> lock(state_mutex_);
    for (size_t slot = begin; slot < end; ++slot) {
      if (slot + KeyPositions::kAhead < end) {
        index_.Prefetch(keys.keys[slot + KeyPositions::kAhead]);
      }
      live[slot] = index_.Find(keys.keys[slot]) == PositionOf(ordinal, slot);
    }
  }
  victim.Scan(0, victim.slots, [&](uint64_t slot, const char* record) {
    if (!live[slot]) return true;
    RecordHeader header;
    std::memcpy(&header, record, sizeof header);
    if (header.key != keys.keys[slot] || !victim.Valid(slot, record)) throw victim.Damage(slot);
    std::memcpy(&rows[batch.size() * shape_.row_bytes], record + sizeof header, shape_.row_bytes);
    batch.push_back(header.key);
    slots.push_back(slot);
    if (batch.size() == most) move_batch();
    return true;
  });
  move_batch();
}

void SsdTier::CollectTombstones(const Segment& victim, const SegmentKeys& keys) {
  std::vector<Tombstone> needed;
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    uint64_t oldest_dirty = ~uint64_t{0};
    for (const auto& s : *segments_) {
      if (s != nullptr && s.get() != &victim && s->dead() > 0) {
        oldest_dirty = std::min(oldest_dirty, s->id());
      }
    }
    for (const std::vector<Tombstone>& record : keys.tombstones) {
      for (const Tombstone& each : record) {
        if (each.born >= oldest_dirty) needed.push_back(each);
      }
    }
  }
  for (size_t begin = 0; begin < needed.size();) {
    const std::lock_guard<std::mutex> lock(write_mutex_);
    if (!MakeRoom(kSpareForCollect)) {
      throw IoError(ENOSPC, "max_bytes leaves no room to collect garbage in", options_.path);
    }
    const size_t end = std::min(needed.size(), begin + kBatch);
    std::vector<Tombstone> still;
    for (size_t i = begin; i < end; ++i) {
      if (index_.Find(needed[i].key) == KeyPositions::kNone) still.push_back(needed[i]);
    }
    for (size_t t = 0; t < still.size();) {
      if (!MakeRoom(kSpareForCollect)) {
        throw IoError(ENOSPC, "max_bytes leaves no room to collect garbage in", options_.path);
      }
      t += AppendTombstones(&still[t], still.size() - t, &stats_.gc_bytes);
    }
    begin = end;
  }
}

void SsdTier::RemoveSegment(const std::shared_ptr<Segment>& victim) {
  auto without = std::make_shared<SegmentTable>(*segments_);
  std::replace(without->begin(), without->end(), victim, std::shared_ptr<Segment>());
  StoreManifest(*without);
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    segments_ = std::move(without);
    if (head_ != nullptr && head_->segment() == victim) head_.reset();
    disk_bytes_ -= victim->bytes;
    used_slots_ -= victim->slots;
    --segment_count_;
    ++stats_.gc_segments;
  }
  env_->Remove(victim->file().path());
}

void SsdTier::Compact() {
  std::vector<std::shared_ptr<Segment>> old;
  {
    const std::lock_guard<std::mutex> lock(write_mutex_);
    CheckWritable();
    FlushLocked();
    if (head_ != nullptr && head_->slots() > 0) SealHead();
    FlushLocked();
    for (const auto& s : *segments_) {
      if (s != nullptr && s->sealed) old.push_back(s);
    }
  }
  std::sort(old.begin(), old.end(), [](const auto& a, const auto& b) { return a->id() < b->id(); });
  for (const auto& segment : old) {
    {
      const std::lock_guard<std::mutex> lock(state_mutex_);
      CheckOpen();
      if (segment->dead() == 0 && segment->tombstone_slots == 0) continue;
    }
    Collect(segment, false);
  }
}

}  // namespace msrec
