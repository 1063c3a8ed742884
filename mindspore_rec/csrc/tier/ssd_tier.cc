// SPDX-License-Identifier: Apache-2.0
//
// The methods of SsdTier that read and write rows. The file ssd_recovery.cc opens a tier, ssd_gc.cc
// collects garbage, and ssd_scan.cc walks over all rows.
#include "tier/ssd_tier.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace msrec {
namespace {

// Two records are read together if the distance between them is at most kMergeGap bytes. In
// measurements, two more blocks in a read take about half the time of a separate read. Reading
// records together also saves processor time.
constexpr uint64_t kMergeGap = 2 * kBlock;

// Maximum number of keys that are looked up in the index under one lock.
constexpr size_t kLookupKeys = 4096;

}  // namespace

SsdTier::~SsdTier() {
  try {
    Close();
  } catch (const std::exception&) {
    // A destructor must not throw; Close reports errors.
  }
}

void SsdTier::CheckOpen() const {
  if (closed_) throw IoError(EBADF, "closed:", options_.path);
}

void SsdTier::CheckWritable() const {
  CheckOpen();
  if (options_.read_only) throw IoError(EROFS, "opened read-only:", options_.path);
}

// ---------------------------------------------------------------- reading

void SsdTier::Read(const int64_t* keys, size_t n, char* rows, bool* found) {
  const size_t row_bytes = shape_.row_bytes;
  std::vector<Request> requests;
  requests.reserve(n);
  std::shared_ptr<const SegmentTable> segments;
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    CheckOpen();
    segments = segments_;
    for (size_t i = 0; i < std::min(n, KeyPositions::kAhead); ++i) index_.Prefetch(keys[i]);
    for (size_t i = 0; i < n; ++i) {
      if (i + KeyPositions::kAhead < n) index_.Prefetch(keys[i + KeyPositions::kAhead]);
      const uint64_t position = index_.Find(keys[i]);
      found[i] = position != KeyPositions::kNone;
      if (!found[i]) continue;
      const char* record = nullptr;
      if (head_ != nullptr && &SegmentOf(position) == head_->segment().get()) {
        record = head_->Buffered(SlotOf(position));
      }
      if (record == nullptr) {
        requests.push_back({position, i});
      } else {
        std::memcpy(rows + i * row_bytes, record + sizeof(RecordHeader), row_bytes);
      }
    }
  }
  const std::vector<Extent> extents = Plan(&requests, *segments);
  reader_.Run(extents, [&](const Extent& extent, const char* data, size_t bytes) {
    const Segment& segment = *(*segments)[OrdinalOf(requests[extent.first].position)];
    for (uint32_t r = extent.first; r < extent.last; ++r) {
      const uint64_t slot = SlotOf(requests[r].position);
      const size_t i = requests[r].i;
      const uint64_t at = segment.OffsetOf(slot) - extent.offset;
      if (at + shape_.record_bytes > bytes) {
        throw Corruption("the file ends within record " + std::to_string(slot),
                         segment.file().path(), segment.OffsetOf(slot));
      }
      RecordHeader header;
      std::memcpy(&header, data + at, sizeof header);
      if (header.key != keys[i] || header.kind != kRowRecord || !segment.Valid(slot, data + at)) {
        throw segment.DamageOf(keys[i], slot);
      }
      std::memcpy(rows + i * row_bytes, data + at + sizeof header, row_bytes);
    }
  });
  uint64_t read = 0;
  for (const Extent& extent : extents) read += extent.bytes;
  const std::lock_guard<std::mutex> lock(state_mutex_);
  stats_.read_bytes += read;
}

// Sorts the reads by position on the disk, and merges neighbouring reads.
std::vector<Extent> SsdTier::Plan(std::vector<Request>* requests,
                                  const SegmentTable& segments) const {
  std::sort(requests->begin(), requests->end(),
            [](const Request& a, const Request& b) { return a.position < b.position; });
  std::vector<Extent> extents;
  extents.reserve(requests->size());
  for (uint32_t r = 0; r < requests->size(); ++r) {
    const uint64_t position = (*requests)[r].position;
    const Segment& segment = *segments[OrdinalOf(position)];
    const uint64_t at = segment.OffsetOf(SlotOf(position));
    const uint64_t begin = RoundDown(at);
    const uint64_t end = RoundUp(at + shape_.record_bytes);
    if (!extents.empty() && extents.back().file == &segment.file()) {
      Extent& last = extents.back();
      if (begin <= last.offset + last.bytes + kMergeGap &&
          end - last.offset <= reader_.max_extent()) {
        last.bytes = static_cast<uint32_t>(end - last.offset);
        last.last = r + 1;
        continue;
      }
    }
    extents.push_back({&segment.file(), begin, static_cast<uint32_t>(end - begin), r, r + 1});
  }
  return extents;
}

// ---------------------------------------------------------------- writing

void SsdTier::Write(const int64_t* keys, size_t n, const char* rows) {
  for (size_t done = 0; done < n;) {
    WaitForCollector();
    {
      const std::lock_guard<std::mutex> lock(write_mutex_);
      CheckWritable();
      if (MakeRoom(kSpareForWrite)) {
        done += AppendRows(keys + done, n - done, rows + done * shape_.row_bytes,
                           &stats_.written_bytes);
        continue;
      }
    }
    WaitForSpace();
  }
}

void SsdTier::Erase(const int64_t* keys, size_t n) {
  std::vector<Tombstone> tombstones;
  for (size_t done = 0; done < n;) {
    WaitForCollector();
    const size_t chunk = std::min(kLookupKeys, n - done);
    bool all = true;
    {
      const std::lock_guard<std::mutex> lock(write_mutex_);
      CheckWritable();
      tombstones.clear();
      for (size_t i = done; i < done + chunk; ++i) {
        if (index_.Find(keys[i]) != KeyPositions::kNone) tombstones.push_back({keys[i], 0});
      }
      for (size_t t = 0; all && t < tombstones.size();) {
        all = MakeRoom(kSpareForErase);
        if (!all) break;
        for (size_t i = t; i < tombstones.size(); ++i) {
          tombstones[i].born = head_->segment()->id();
        }
        t += AppendTombstones(&tombstones[t], tombstones.size() - t, &stats_.written_bytes);
      }
    }
    if (all) {
      done += chunk;
    } else {
      WaitForSpace();
    }
  }
}

void SsdTier::Flush() {
  const std::lock_guard<std::mutex> lock(write_mutex_);
  CheckWritable();
  FlushLocked();
}

void SsdTier::FlushLocked() {
  lock_->Check();  // a directory that is gone takes the files with it, and they would not tell
  if (head_ != nullptr) head_->Sync();
  if (manifest_stale_) StoreManifest(*segments_);
}

size_t SsdTier::AppendRows(const int64_t* keys, size_t n, const char* rows, uint64_t* counter) {
  const size_t count = std::min(n, head_->room());
  for (size_t i = 0; i < count; ++i) {
    head_->Stage(i, kRowRecord, keys[i], rows + i * shape_.row_bytes);
  }
  const std::lock_guard<std::mutex> lock(state_mutex_);
  Segment& segment = *head_->segment();
  for (size_t i = 0; i < std::min(count, KeyPositions::kAhead); ++i) index_.Prefetch(keys[i]);
  for (size_t i = 0; i < count; ++i) {
    if (i + KeyPositions::kAhead < count) index_.Prefetch(keys[i + KeyPositions::kAhead]);
    const uint64_t before = index_.Put(keys[i], PositionOf(head_ordinal_, head_->slots()));
    if (before != KeyPositions::kNone) --SegmentOf(before).live;
    head_->Publish();
    ++segment.slots;
    ++segment.live;
    ++used_slots_;
    *counter += shape_.record_bytes;
  }
  if (ShouldCollect()) wake_collector_.notify_one();
  return count;
}

size_t SsdTier::AppendTombstones(const Tombstone* tombstones, size_t n, uint64_t* counter) {
  const size_t each = shape_.tombstones;
  const size_t records = std::min((n + each - 1) / each, head_->room());
  const size_t count = std::min(n, records * each);
  for (size_t i = 0; i < records; ++i) {
    const size_t here = std::min(each, n - i * each);
    head_->Stage(i, kTombstoneRecord, static_cast<int64_t>(here), tombstones + i * each);
  }
  const std::lock_guard<std::mutex> lock(state_mutex_);
  Segment& segment = *head_->segment();
  for (size_t i = 0; i < records; ++i) {
    head_->Publish();
    ++segment.slots;
    ++segment.tombstone_slots;
    ++used_slots_;
    *counter += shape_.record_bytes;
    for (size_t t = i * each; t < std::min(n, (i + 1) * each); ++t) {
      const uint64_t before = index_.Erase(tombstones[t].key);
      if (before != KeyPositions::kNone) --SegmentOf(before).live;
    }
  }
  if (ShouldCollect()) wake_collector_.notify_one();
  return count;
}

bool SsdTier::MakeRoom(uint64_t spare) {
  if (head_ != nullptr && head_->full()) SealHead();
  if (!HasSpace(spare)) return false;
  if (head_ == nullptr) AddHead();
  if (head_->room() == 0) head_->WriteOut();
  return true;
}

bool SsdTier::HasSpace(uint64_t spare) const {
  if (options_.max_bytes == 0) return true;
  const bool grows = head_ == nullptr || head_->full();
  return disk_bytes_ + (spare + (grows ? 1 : 0)) * options_.segment_bytes <= options_.max_bytes;
}

void SsdTier::SealHead() {
  head_->Seal();
  manifest_stale_ = true;
  const uint64_t bytes = head_->segment()->file().Size();
  const std::lock_guard<std::mutex> lock(state_mutex_);
  Segment& segment = *head_->segment();
  segment.sealed = true;
  disk_bytes_ += bytes - segment.bytes;
  segment.bytes = bytes;
  head_.reset();
}

void SsdTier::AddHead() {
  lock_->Check();
  const uint64_t id = next_id_++;
  const std::string path = options_.path + "/" + SegmentName(id);
  std::unique_ptr<File> file;
  try {
    file = Segment::Create(env_, path, options_.direct, id, shape_, slots_per_segment_,
                           options_.segment_bytes);
  } catch (const IoError&) {
    try {
      env_->Remove(path);
    } catch (const IoError&) {
      // Ignore the error of Remove, because the first error is more useful to the user.
    }
    throw;
  }
  auto segment = std::make_shared<Segment>(std::move(file), id, shape_);
  auto writer = std::make_unique<SegmentWriter>(segment, &state_mutex_);
  SegmentTable with = *segments_;
  with.push_back(segment);
  try {
    StoreManifest(with);
  } catch (const IoError&) {
    // The segment's file is truncated but not removed, because the new manifest, which lists the
    // file, may be on the disk.
    try {
      segment->mutable_file()->Truncate(kDataOffset);
    } catch (const IoError&) {
    }
    throw;
  }
  const std::lock_guard<std::mutex> lock(state_mutex_);
  head_ordinal_ = AddSegment(std::move(segment));
  head_ = std::move(writer);
}

// ---------------------------------------------------------------- other functions

size_t SsdTier::size() const {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  return index_.size();
}

std::vector<int64_t> SsdTier::Keys() const {
  std::vector<int64_t> keys;
  const std::lock_guard<std::mutex> lock(state_mutex_);
  CheckOpen();
  keys.reserve(index_.size());
  index_.ForEach([&](int64_t key, uint64_t) { keys.push_back(key); });
  return keys;
}

void SsdTier::Contains(const int64_t* keys, size_t n, bool* found) const {
  for (size_t begin = 0; begin < n; begin += kLookupKeys) {
    const size_t end = std::min(n, begin + kLookupKeys);
    const std::lock_guard<std::mutex> lock(state_mutex_);
    CheckOpen();
    for (size_t i = begin; i < std::min(end, begin + KeyPositions::kAhead); ++i) {
      index_.Prefetch(keys[i]);
    }
    for (size_t i = begin; i < end; ++i) {
      if (i + KeyPositions::kAhead < end) index_.Prefetch(keys[i + KeyPositions::kAhead]);
      found[i] = index_.Find(keys[i]) != KeyPositions::kNone;
    }
  }
}

void SsdTier::Clear() {
  const std::lock_guard<std::mutex> collecting(collect_mutex_);
  const std::lock_guard<std::mutex> writing(write_mutex_);
  CheckWritable();
  auto none = std::make_shared<SegmentTable>();
  std::shared_ptr<const SegmentTable> old = none;
  KeyPositions index;
  // The tier is cleared when StoreManifest succeeds. If StoreManifest fails, this process still has
  // all rows, but the disk may have the new manifest, so the next Flush must write the manifest
  // again.
  manifest_stale_ = true;
  StoreManifest(*none);
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    old.swap(segments_);
    std::swap(index, index_);
    head_.reset();
    disk_bytes_ = 0;
    used_slots_ = 0;
    segment_count_ = 0;
    gc_error_.clear();
    collected_.notify_all();
  }
  // A file that cannot be removed is a leftover, which the next opening of the tier removes.
  std::exception_ptr error;
  for (const auto& segment : *old) {
    if (segment == nullptr) continue;
    try {
      env_->Remove(segment->file().path());
    } catch (const IoError&) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

TierStats SsdTier::Stats() const {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  TierStats stats = stats_;
  stats.rows = index_.size();
  stats.live_bytes = index_.size() * shape_.row_bytes;
  stats.disk_bytes = disk_bytes_;
  stats.index_bytes = index_.bytes() + segments_->size() * sizeof(Segment);
  stats.buffer_bytes = reader_.buffer_bytes() + (head_ != nullptr ? head_->buffer_bytes() : 0);
  stats.segments = segment_count_;
  for (const auto& segment : *segments_) {
    if (segment == nullptr) continue;
    stats.tombstone_records += segment->tombstone_slots;
    stats.damaged_segments += segment->damaged;
  }
  return stats;
}

std::vector<SsdTier::SegmentInfo> SsdTier::Segments() const {
  std::vector<SegmentInfo> out;
  const std::lock_guard<std::mutex> lock(state_mutex_);
  for (const auto& s : *segments_) {
    if (s == nullptr) continue;
    out.push_back(
        {SegmentName(s->id()), s->slots, s->live, s->tombstone_slots, s->bytes, s->sealed});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

std::string SsdTier::gc_error() const {
  const std::lock_guard<std::mutex> lock(state_mutex_);
  return gc_error_;
}

std::vector<Corruption> SsdTier::Verify() {
  struct Part {
    std::shared_ptr<Segment> segment;
    uint64_t slots;
    bool sealed;
  };
  std::vector<Part> parts;
  {
    const std::lock_guard<std::mutex> writing(write_mutex_);
    CheckOpen();
    if (head_ != nullptr) head_->WriteOut();
    for (const auto& s : *segments_) {
      if (s != nullptr) parts.push_back({s, s->slots, s->sealed});
    }
  }
  std::vector<Corruption> problems;
  for (const Part& part : parts) part.segment->Verify(part.slots, part.sealed, &problems);
  return problems;
}

void SsdTier::Close() {
  {
    const std::lock_guard<std::mutex> lock(state_mutex_);
    if (stop_) return;
    stop_ = true;
    wake_collector_.notify_all();
    collected_.notify_all();
  }
  if (collector_.joinable()) collector_.join();
  const std::lock_guard<std::mutex> collecting(collect_mutex_);
  const std::lock_guard<std::mutex> writing(write_mutex_);
  std::exception_ptr error;
  if (!options_.read_only && !closed_) {
    try {
      FlushLocked();
      if (head_ != nullptr && head_->slots() > 0) SealHead();
      if (head_ != nullptr)
        RemoveSegment(std::shared_ptr(head_->segment()));  // nothing was written to it
      if (manifest_stale_) StoreManifest(*segments_);
    } catch (...) {
      error = std::current_exception();
    }
  }
  const std::lock_guard<std::mutex> lock(state_mutex_);
  closed_ = true;
  head_.reset();
  segments_ = std::make_shared<SegmentTable>();
  index_ = KeyPositions();
  lock_.reset();
  if (error) std::rethrow_exception(error);
}

}  // namespace msrec
