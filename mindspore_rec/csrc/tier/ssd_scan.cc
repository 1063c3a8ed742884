// SPDX-License-Identifier: Apache-2.0
//
// A walk over the rows of an SsdTier.
//
// A row's place in the log only moves towards the end, because writers and garbage collection
// append. A walk reads the log in order. The walk returns a record if the index points to this
// record when the record is read. A walk that reaches the end of the log finds every row. If
// writers append so fast that the walk does not reach the end, the walk stops after twice the
// initial size of the log. If the walk stops early, each part of the index is searched for rows
// that lie beyond the point where the walk stopped, and these rows are read. If the index points to
// a row before the point where the walk stopped, the walk has already returned the row.
//
// The key of a damaged record is unknown, so only a walk through the index shows whether the record
// is a live row. Damaged records are collected. A walk through the index checks all collected
// records at once, at the latest when the whole log has been read. A scan reads many records
// between two walks through the index, so damaged records slow the scan only by a constant factor.
// The index may be searched for a damaged record long after the record was read. No live row is
// missed, because an index that no longer points to a record never points to this record again.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "tier/aligned_buffer.h"
#include "tier/ssd_tier.h"

namespace msrec {
namespace {

constexpr size_t kReadBytes = size_t{2} << 20;
constexpr size_t kLookupRecords = 2048;  // records looked up under the lock at a time
constexpr uint64_t kIndexShare = 64;     // entries walked through a record read, at most

}  // namespace

class SsdScan : public TierScan {
 public:
  SsdScan(SsdTier* tier, bool exact);
  ~SsdScan() override;
  bool Next(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows) override;

 private:
  struct Record {
    uint64_t slot;
    int64_t key;
    const char* row;  // null: none, or one that is not live
  };
  // Damaged records of a segment.
  struct Doubts {
    std::shared_ptr<Segment> segment;
    std::vector<bool> slots;
  };
  // A damaged record that contains a live row.
  struct Damaged {
    std::shared_ptr<Segment> segment;
    uint64_t position;
    int64_t key;
  };
  enum class Stage { kLog, kIndex, kEnd };

  void NextOfLog(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows);
  void NextOfIndex(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows);
  bool Behind(uint64_t position) const;  // the point the walk through the log has reached
  void KeepLive(const std::shared_ptr<Segment>& segment, size_t ordinal);
  void Doubt(const std::shared_ptr<Segment>& segment, size_t ordinal,
             const std::vector<uint64_t>& slots);
  void ResolveDoubts(bool now);
  void CheckDamaged();

  SsdTier* const tier_;
  const bool exact_;
  Stage stage_ = Stage::kLog;
  AlignedBuffer buffer_;
  std::vector<Record> records_;         // what was read just now
  uint64_t id_ = 0;                     // of the segment the walk is in
  uint64_t slot_ = 0;                   // the next record there
  uint64_t left_;                       // records to read before the index is asked
  uint64_t part_ = 0;                   // of the index
  std::vector<int64_t> pending_;        // keys of that part still to be read
  std::vector<Doubts> doubts_;          // by ordinal
  bool doubtful_ = false;               // there are some
  uint64_t read_since_ = ~uint64_t{0};  // records read since the index was walked through for them
  std::optional<Damaged> damaged_;
};

std::unique_ptr<TierScan> SsdTier::Scan(bool exact) {
  return std::make_unique<SsdScan>(this, exact);
}

SsdScan::SsdScan(SsdTier* tier, bool exact)
    : tier_(tier),
      exact_(exact),
      buffer_(std::max(kReadBytes, tier->shape_.record_bytes + 2 * kBlock)) {
  std::unique_lock<std::mutex> collecting(tier->collect_mutex_, std::defer_lock);
  if (exact) collecting.lock();  // a collection that is under way comes to its end
  const std::lock_guard<std::mutex> lock(tier->state_mutex_);
  tier->CheckOpen();
  left_ = 2 * tier->used_slots_ + tier->slots_per_segment_;
  if (exact) ++tier->exact_scans_;
}

SsdScan::~SsdScan() {
  if (!exact_) return;
  const std::lock_guard<std::mutex> lock(tier_->state_mutex_);
  --tier_->exact_scans_;
  tier_->wake_collector_.notify_one();
}

bool SsdScan::Next(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows) {
  most = std::max<size_t>(most, 1);
  keys->clear();
  rows->clear();
  while ((stage_ != Stage::kEnd || doubtful_ || damaged_) && 2 * keys->size() < most) {
    try {
      CheckDamaged();
      ResolveDoubts(stage_ == Stage::kEnd);
      if (stage_ == Stage::kEnd) break;
      if (stage_ == Stage::kLog) {
        NextOfLog(most - keys->size(), keys, rows);
      } else {
        NextOfIndex(most - keys->size(), keys, rows);
      }
    } catch (...) {
      // Return the rows that were collected before the error, because the walk would not visit
      // these rows again. The next call throws the error.
      if (keys->empty()) throw;
      rows->resize(keys->size() * tier_->shape_.row_bytes);
      return true;
    }
  }
  if (stage_ == Stage::kEnd) {
    const std::lock_guard<std::mutex> lock(tier_->state_mutex_);
    tier_->CheckOpen();
  }
  return !keys->empty();
}

void SsdScan::NextOfLog(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows) {
  const RecordShape& shape = tier_->shape_;
  const size_t row_bytes = shape.row_bytes;
  std::shared_ptr<Segment> segment;
  size_t ordinal = 0;
  uint64_t slot = 0, end = 0;
  records_.clear();
  {
    const std::lock_guard<std::mutex> lock(tier_->state_mutex_);
    tier_->CheckOpen();
    const SsdTier::SegmentTable& segments = *tier_->segments_;
    for (size_t i = 0; i < segments.size(); ++i) {
      const auto& s = segments[i];
      if (s == nullptr || s->id() < id_ || (s->id() == id_ && s->slots <= slot_)) continue;
      if (s->slots == 0 || (segment != nullptr && segment->id() < s->id())) continue;
      segment = s;
      ordinal = i;
    }
    if (segment == nullptr) {
      stage_ = Stage::kEnd;
      return;
    }
    if (left_ == 0) {
      stage_ = Stage::kIndex;
      return;
    }
    slot = segment->id() == id_ ? slot_ : 0;
    end = std::min(segment->slots, slot + std::min<uint64_t>(most, left_));
    if (tier_->head_ != nullptr && tier_->head_->segment() == segment) {
      if (slot < tier_->head_->written_slots()) {
        end = std::min(end, tier_->head_->written_slots());
      } else {  // in memory only
        for (; slot < end; ++slot) {
          const char* record = tier_->head_->Buffered(slot);
          RecordHeader header;
          std::memcpy(&header, record, sizeof header);
          if (header.kind != kRowRecord) continue;
          if (tier_->index_.Find(header.key) != tier_->PositionOf(ordinal, slot)) continue;
          keys->push_back(header.key);
          rows->insert(rows->end(), record + sizeof header, record + sizeof header + row_bytes);
        }
      }
    }
  }
  if (slot < end) {
    const uint64_t begin = RoundDown(segment->OffsetOf(slot));
    const uint64_t want = RoundUp(segment->OffsetOf(end)) - begin;
    const size_t got =
        segment->file().Read(begin, std::min<uint64_t>(buffer_.size(), want), buffer_.data());
    const uint64_t first = slot;
    std::vector<uint64_t> doubts;
    for (; slot < end && segment->OffsetOf(slot + 1) <= begin + got; ++slot) {
      const char* record = buffer_.data() + (segment->OffsetOf(slot) - begin);
      RecordHeader header;
      std::memcpy(&header, record, sizeof header);
      if (!segment->Valid(slot, record)) {
        doubts.push_back(slot);
      } else if (header.kind == kRowRecord) {
        records_.push_back({slot, header.key, record + sizeof header});
      }
    }
    if (slot == first) {
      throw Corruption("the file ends within record " + std::to_string(slot),
                       segment->file().path(), segment->OffsetOf(slot));
    }
    if (!doubts.empty()) Doubt(segment, ordinal, doubts);
    KeepLive(segment, ordinal);
    const size_t live = static_cast<size_t>(std::count_if(
        records_.begin(), records_.end(), [](const Record& each) { return each.row != nullptr; }));
    keys->reserve(keys->size() + live);
    rows->reserve(rows->size() + live * row_bytes);
    for (const Record& each : records_) {
      if (each.row == nullptr) continue;
      keys->push_back(each.key);
      rows->insert(rows->end(), each.row, each.row + row_bytes);
    }
    const std::lock_guard<std::mutex> lock(tier_->state_mutex_);
    tier_->stats_.read_bytes += got;
  }
  const uint64_t passed = slot - (segment->id() == id_ ? slot_ : 0);
  left_ -= passed;
  read_since_ = std::max(read_since_, read_since_ + passed);  // no overflow
  id_ = segment->id();
  slot_ = slot;
}

// Drops the rows of records that are no longer live. The segment may have been removed since the
// read, and a new segment may have the removed segment's ordinal.
void SsdScan::KeepLive(const std::shared_ptr<Segment>& segment, size_t ordinal) {
  for (size_t begin = 0; begin < records_.size(); begin += kLookupRecords) {
    const size_t end = std::min(records_.size(), begin + kLookupRecords);
    const std::lock_guard<std::mutex> lock(tier_->state_mutex_);
    const SsdTier::SegmentTable& segments = *tier_->segments_;
    const bool there = ordinal < segments.size() && segments[ordinal] == segment;
    for (size_t i = begin; i < end; ++i) {
      if (i + KeyPositions::kAhead < end) {
        tier_->index_.Prefetch(records_[i + KeyPositions::kAhead].key);
      }
      Record& each = records_[i];
      if (!there || tier_->index_.Find(each.key) != tier_->PositionOf(ordinal, each.slot)) {
        each.row = nullptr;
      }
    }
  }
}

// Requires: `slots` is in ascending order, and the segment's records at these slots were just read
// and are damaged.
void SsdScan::Doubt(const std::shared_ptr<Segment>& segment, size_t ordinal,
                    const std::vector<uint64_t>& slots) {
  if (ordinal >= doubts_.size()) doubts_.resize(ordinal + 1);
  Doubts& doubts = doubts_[ordinal];
  if (doubts.segment != segment) {
    // doubts.segment and `segment` have the same ordinal, so one of these two segments has been
    // removed.
    const std::lock_guard<std::mutex> lock(tier_->state_mutex_);
    const SsdTier::SegmentTable& segments = *tier_->segments_;
    if (ordinal >= segments.size() || segments[ordinal] != segment) return;
    doubts = {segment, {}};
  }
  if (slots.back() >= doubts.slots.size()) doubts.slots.resize(slots.back() + 1);
  for (const uint64_t slot : slots) doubts.slots[slot] = true;
  doubtful_ = true;
}

// Throws Corruption if the index points to a damaged record. The damaged records are in doubts_. If
// `now` is true, the index is walked through even if the last walk through the index was recent.
void SsdScan::ResolveDoubts(bool now) {
  if (!doubtful_) return;
  std::vector<bool> here(doubts_.size());
  for (uint64_t part = 0; part < KeyPositions::kParts; ++part) {
    const std::lock_guard<std::mutex> lock(tier_->state_mutex_);
    tier_->CheckOpen();
    if (part == 0) {
      if (!now && read_since_ < tier_->index_.size() / kIndexShare) return;
      read_since_ = 0;
    }
    const SsdTier::SegmentTable& segments = *tier_->segments_;
    for (size_t i = 0; i < doubts_.size(); ++i) {
      here[i] =
          doubts_[i].segment != nullptr && i < segments.size() && segments[i] == doubts_[i].segment;
    }
    tier_->index_.ForEachOf(part, [&](int64_t key, uint64_t position) {
      const size_t ordinal = tier_->OrdinalOf(position);
      if (ordinal >= here.size() || !here[ordinal]) return;
      const Doubts& doubts = doubts_[ordinal];
      const uint64_t slot = tier_->SlotOf(position);
      if (slot >= doubts.slots.size() || !doubts.slots[slot]) return;
      if (!damaged_ || position < damaged_->position) damaged_ = {doubts.segment, position, key};
    });
  }
  if (damaged_) {
    read_since_ = ~uint64_t{0};  // if it is written again, there may be others
    throw damaged_->segment->DamageOf(damaged_->key, tier_->SlotOf(damaged_->position));
  }
  doubts_.clear();
  doubtful_ = false;
}

// If the damaged record is still the newest record of its key, throws the record's error again.
void SsdScan::CheckDamaged() {
  if (!damaged_) return;
  {
    const std::lock_guard<std::mutex> lock(tier_->state_mutex_);
    tier_->CheckOpen();
    const SsdTier::SegmentTable& segments = *tier_->segments_;
    const size_t ordinal = tier_->OrdinalOf(damaged_->position);
    if (ordinal < segments.size() && segments[ordinal] == damaged_->segment &&
        tier_->index_.Find(damaged_->key) == damaged_->position) {
      throw damaged_->segment->DamageOf(damaged_->key, tier_->SlotOf(damaged_->position));
    }
  }
  damaged_.reset();
}

bool SsdScan::Behind(uint64_t position) const {
  const uint64_t id = tier_->SegmentOf(position).id();
  return id > id_ || (id == id_ && tier_->SlotOf(position) >= slot_);
}

void SsdScan::NextOfIndex(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows) {
  if (pending_.empty()) {
    const std::lock_guard<std::mutex> lock(tier_->state_mutex_);
    tier_->CheckOpen();
    if (part_ == KeyPositions::kParts) {
      stage_ = Stage::kEnd;
      return;
    }
    tier_->index_.ForEachOf(part_, [&](int64_t key, uint64_t position) {
      if (Behind(position)) pending_.push_back(key);
    });
    // Sort the keys, because the order of the index differs between processes.
    std::sort(pending_.begin(), pending_.end());
    ++part_;
    return;
  }
  const size_t row_bytes = tier_->shape_.row_bytes;
  const size_t n = std::min(std::min(most, pending_.size()),
                            std::max<size_t>(1, kReadBytes / std::max<size_t>(1, row_bytes)));
  const int64_t* batch = pending_.data() + (pending_.size() - n);
  const size_t before = rows->size();
  rows->resize(before + n * row_bytes);
  const std::unique_ptr<bool[]> found(new bool[n]);
  tier_->Read(batch, n, rows->data() + before, found.get());
  char* to = rows->data() + before;
  for (size_t i = 0; i < n; ++i) {  // those erased since leave gaps
    if (!found[i]) continue;
    const char* from = rows->data() + before + i * row_bytes;
    if (to != from) std::memcpy(to, from, row_bytes);
    to += row_bytes;
    keys->push_back(batch[i]);
  }
  rows->resize(static_cast<size_t>(to - rows->data()));
  pending_.resize(pending_.size() - n);
}

}  // namespace msrec
