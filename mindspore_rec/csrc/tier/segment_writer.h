// SPDX-License-Identifier: Apache-2.0
//
// SegmentWriter: appends records to the last segment, through a buffer of about a megabyte.
//
// Two locks of the tier are named here. `write`: held for every call, so there is one writer at a
// time. `state`: guards what readers look at, which is records() and those records that are in the
// buffer only; the calls that change it take it or say so. No file is touched under `state`.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "tier/aligned_buffer.h"
#include "tier/segment.h"

namespace msrec {

class SegmentWriter {
 public:
  // Requires: a new segment.
  SegmentWriter(std::shared_ptr<Segment> segment, std::mutex* state);

  // Records that can be staged now. 0: WriteOut makes room, unless the segment is full().
  size_t room() const;
  bool full() const { return slots_ == segment_->capacity(); }

  // Encodes a record into the i-th free place. Requires i < room(). Nobody sees it yet.
  void Stage(size_t i, RecordKind kind, int64_t key, const void* payload);
  // The next staged record counts from now on. Requires `state`.
  void Publish();

  // The file gets all that was published. Throws IoError; may be called again then.
  void WriteOut();
  // What was published survives power loss when it returns. After it threw, the system no longer
  // says what is on the disk: every later call throws, reading goes on.
  void Sync();
  // The end of this segment: footer and trailer are written and all is synced. Throws as Sync does.
  void Seal();

  // For readers, under `state`: whether the record must be read from here, and its address.
  const char* Buffered(uint64_t slot) const {
    if (slot < written_slots_) return nullptr;
    return buffer_.data() + (segment_->OffsetOf(slot) - base_);
  }

  uint64_t slots() const { return slots_; }
  uint64_t written_slots() const { return written_slots_; }  // those not only in the buffer
  const std::shared_ptr<Segment>& segment() const { return segment_; }
  size_t buffer_bytes() const { return buffer_.size() + keys_.capacity() * sizeof(int64_t); }

 private:
  void SyncFile();

  const std::shared_ptr<Segment> segment_;
  std::mutex* const state_;
  AlignedBuffer buffer_;
  uint64_t base_ = kDataOffset;  // where in the file the buffer begins; a whole block
  uint64_t slots_ = 0;           // published
  uint64_t written_slots_ = 0;   // in the file
  uint64_t synced_slots_ = 0;
  uint64_t epoch_ = 0;
  bool sync_failed_ = false;
  std::vector<int64_t> keys_;
  std::vector<uint32_t> tombstone_slots_;
};

}  // namespace msrec
