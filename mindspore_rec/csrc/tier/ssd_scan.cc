// SPDX-License-Identifier: Apache-2.0
//
// Walking over the rows of an SsdTier.
//
// A row's place in the log only ever moves towards the end: writers and garbage collection append.
// So a walk through the log in order, which gives what the index points to at that moment, meets
// every row, if it gets to the end. Where writers keep that moving away, it is left off after twice
// the log there was at the start, and the index is asked, part by part, for the keys whose rows lie
// behind the point that was reached; these are looked up like any other. A row before that point
// that the index still points to was there when the walk came by, and was given then.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tier/aligned_buffer.h"
#include "tier/ssd_tier.h"

namespace msrec {
namespace {

constexpr size_t kReadBytes = size_t{2} << 20;
constexpr size_t kLookupChunk = 2048;  // records looked up under the lock at a time
constexpr size_t kAhead = 16;          // index entries requested before they are needed

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
  enum class Stage { kLog, kIndex, kEnd };

  void NextOfLog(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows);
  void NextOfIndex(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows);
  bool Behind(uint64_t position) const;  // the point the walk through the log has reached
  void KeepLive(const std::shared_ptr<Segment>& segment, size_t ordinal);
  bool IndexPointsTo(const std::shared_ptr<Segment>& segment, size_t ordinal, uint64_t slot) const;

  SsdTier* const tier_;
  const bool exact_;
  Stage stage_ = Stage::kLog;
  AlignedBuffer buffer_;
  std::vector<Record> records_;   // what was read just now
  uint64_t id_ = 0;               // of the segment the walk is in
  uint64_t slot_ = 0;             // the next record there
  uint64_t left_;                 // records to read before the index is asked
  uint64_t part_ = 0;             // of the index
  std::vector<int64_t> pending_;  // keys of that part still to be read
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
  while (stage_ != Stage::kEnd && 2 * keys->size() < most) {
    try {
      if (stage_ == Stage::kLog) {
        NextOfLog(most - keys->size(), keys, rows);
      } else {
        NextOfIndex(most - keys->size(), keys, rows);
      }
    } catch (...) {
      // What is there already will not come again; the next call meets the error again.
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
    for (; slot < end && segment->OffsetOf(slot + 1) <= begin + got; ++slot) {
      const char* record = buffer_.data() + (segment->OffsetOf(slot) - begin);
      RecordHeader header;
      std::memcpy(&header, record, sizeof header);
      if (!segment->Valid(slot, record)) {
        // Its key may be what is damaged, so the index cannot be asked by it.
        if (IndexPointsTo(segment, ordinal, slot)) throw segment->Damage(slot);
      } else if (header.kind == kRowRecord) {
        records_.push_back({slot, header.key, record + sizeof header});
      }
    }
    if (slot == first) {
      throw Corruption("the file ends within record " + std::to_string(slot),
                       segment->file().path(), segment->OffsetOf(slot));
    }
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
  left_ -= slot - (segment->id() == id_ ? slot_ : 0);
  id_ = segment->id();
  slot_ = slot;
}

// What is not live any more loses its row. The segment may have been removed meanwhile, and another
// one have its ordinal.
void SsdScan::KeepLive(const std::shared_ptr<Segment>& segment, size_t ordinal) {
  for (size_t begin = 0; begin < records_.size(); begin += kLookupChunk) {
    const size_t end = std::min(records_.size(), begin + kLookupChunk);
    const std::lock_guard<std::mutex> lock(tier_->state_mutex_);
    const SsdTier::SegmentTable& segments = *tier_->segments_;
    const bool there = ordinal < segments.size() && segments[ordinal] == segment;
    for (size_t i = begin; i < end; ++i) {
      if (i + kAhead < end) tier_->index_.Prefetch(records_[i + kAhead].key);
      Record& each = records_[i];
      if (!there || tier_->index_.Find(each.key) != tier_->PositionOf(ordinal, each.slot)) {
        each.row = nullptr;
      }
    }
  }
}

bool SsdScan::IndexPointsTo(const std::shared_ptr<Segment>& segment, size_t ordinal,
                            uint64_t slot) const {
  const std::lock_guard<std::mutex> lock(tier_->state_mutex_);
  const SsdTier::SegmentTable& segments = *tier_->segments_;
  if (ordinal >= segments.size() || segments[ordinal] != segment) return false;
  bool found = false;
  tier_->index_.ForEach(
      [&](int64_t, uint64_t position) { found |= position == tier_->PositionOf(ordinal, slot); });
  return found;
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
