// SPDX-License-Identifier: Apache-2.0
//
// SegmentWriter: appends records to the last segment, through a buffer of a megabyte. The buffer is
// larger if fewer than four records fit into a megabyte.
//
// The tier's mutex `write` is locked during every call, so only one thread writes at a time. The
// tier's mutex `state` guards the data that readers use: slots(), written_slots(), and the
// published records that are only in the buffer. A method that changes the guarded data locks
// `state`, unless the method's comment requires that the caller has already locked `state`. No file
// is accessed while `state` is locked.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "tier/aligned_buffer.h"
#include "tier/segment.h"

namespace msrec {

class SegmentWriter {
 public:
  // Requires: `segment` has no records yet.
  SegmentWriter(std::shared_ptr<Segment> segment, std::mutex* state);

  // Number of records that can be staged now. If no record can be staged and the segment is not
  // full(), WriteOut makes room.
  size_t room() const;
  bool full() const { return slots_ == segment_->capacity(); }

  // Encodes a record into the i-th free place. Readers do not find the record before Publish is
  // called. Requires i < room().
  void Stage(size_t i, RecordKind kind, int64_t key, const void* payload);
  // Makes the next staged record part of the log. Requires the lock `state`.
  void Publish();

  // Writes all published records to the file. After an IoError, WriteOut may be called again; it
  // throws if an earlier sync failed.
  void WriteOut();
  // Syncs the file. After Sync has returned, published records survive power loss. After the file's
  // sync has failed once, the state of the disk is unknown, so every later call of WriteOut, Sync
  // and Seal throws. Reads still work.
  void Sync();
  // Ends the segment: writes the footer and the trailer, and syncs the file. Throws the same
  // exceptions as Sync.
  void Seal();

  // Returns the address of a record that is not in the file yet; returns null if the record is in
  // the file. Requires `state`.
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
