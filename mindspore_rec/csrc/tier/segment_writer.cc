// SPDX-License-Identifier: Apache-2.0
#include "tier/segment_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace msrec {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

}  // namespace

SegmentWriter::SegmentWriter(std::shared_ptr<Segment> segment, std::mutex* state)
    : segment_(std::move(segment)),
      state_(state),
      buffer_(std::max(kBufferBytes, 4 * segment_->shape().record_bytes + 2 * kBlock)) {
  keys_.reserve(segment_->capacity());
}

size_t SegmentWriter::room() const {
  const uint64_t end = segment_->OffsetOf(slots_);
  const uint64_t in_buffer = (base_ + buffer_.size() - end) / segment_->shape().record_bytes;
  return std::min(in_buffer, segment_->capacity() - slots_);
}

void SegmentWriter::Stage(size_t i, RecordKind kind, int64_t key, const void* payload) {
  const uint64_t slot = slots_ + i;
  char* out = buffer_.data() + (segment_->OffsetOf(slot) - base_);
  segment_->shape().Encode(segment_->id(), slot, kind, key, payload, out);
}

void SegmentWriter::Publish() {
  RecordHeader header;
  std::memcpy(&header, buffer_.data() + (segment_->OffsetOf(slots_) - base_), sizeof header);
  if (header.kind == kTombstoneRecord) tombstone_slots_.push_back(static_cast<uint32_t>(slots_));
  keys_.push_back(header.key);
  ++slots_;
}

void SegmentWriter::WriteOut() {
  if (sync_failed_) {
    throw IoError(EIO, "an earlier sync failed; close and open again:", segment_->file().path());
  }
  if (written_slots_ == slots_) return;
  const uint64_t end = segment_->OffsetOf(slots_);
  const uint64_t padded = RoundUp(end);
  std::memset(buffer_.data() + (end - base_), 0, padded - end);
  segment_->mutable_file()->Write(base_, padded - base_, buffer_.data());
  // The next write starts at the beginning of the last block, and repeats the records that this
  // block already contains.
  const uint64_t next_base = RoundDown(end);
  const std::lock_guard<std::mutex> lock(*state_);
  std::memmove(buffer_.data(), buffer_.data() + (next_base - base_), end - next_base);
  base_ = next_base;
  written_slots_ = slots_;
}

void SegmentWriter::SyncFile() {
  try {
    segment_->mutable_file()->Sync();
  } catch (const IoError&) {
    sync_failed_ = true;
    throw;
  }
}

void SegmentWriter::Sync() {
  WriteOut();
  if (synced_slots_ == slots_) return;
  SyncFile();
  // Write the mark only after the sync, because the disk may reorder writes between two syncs.
  AlignedBuffer block(kBlock);
  EncodeMark(segment_->id(), {epoch_ + 1, slots_}, block.data());
  segment_->mutable_file()->Write(kBlock * (1 + epoch_ % 2), kBlock, block.data());
  SyncFile();
  ++epoch_;
  synced_slots_ = slots_;
}

void SegmentWriter::Seal() {
  WriteOut();
  segment_->WriteFooter(keys_, tombstone_slots_);
  SyncFile();
}

}  // namespace msrec
