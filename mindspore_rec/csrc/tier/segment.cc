// SPDX-License-Identifier: Apache-2.0
#include "tier/segment.h"

#include <algorithm>
#include <cstring>

#include "tier/aligned_buffer.h"
#include "util/bytes.h"
#include "util/crc32c.h"

namespace msrec {
namespace {

constexpr size_t kScanBytes = size_t{1} << 20;
constexpr uint64_t kMostReported = 1000;  // damaged records of one segment

// Requires: the record is a valid tombstone record.
std::vector<Tombstone> TombstonesOf(const char* record) {
  RecordHeader header;
  std::memcpy(&header, record, sizeof header);
  std::vector<Tombstone> out(static_cast<size_t>(header.key));
  if (!out.empty()) {
    std::memcpy(out.data(), record + sizeof header, out.size() * sizeof(Tombstone));
  }
  return out;
}

}  // namespace

Segment::Segment(std::unique_ptr<File> file, uint64_t id, const RecordShape& shape)
    : file_(std::move(file)), id_(id), shape_(shape) {
  AlignedBuffer block(kBlock);
  if (file_->Read(0, kBlock, block.data()) != kBlock) {
    throw Corruption("the file is cut off within its header", file_->path(), 0);
  }
  const SegmentHeader header = DecodeHeader(block.data(), file_->path());
  if (header.id != id || header.row_bytes != shape.row_bytes) {
    throw Corruption("the header is that of segment " + std::to_string(header.id) +
                         " with rows of " + std::to_string(header.row_bytes) + " bytes",
                     file_->path(), 0);
  }
  if (header.slots > kMaxSlots) {
    throw Corruption(
        "the header says that it has room for " + std::to_string(header.slots) + " records",
        file_->path(), 0);
  }
  capacity_ = header.slots;
  bytes = file_->Size();
}

std::unique_ptr<File> Segment::Create(Env* env, const std::string& path, bool direct, uint64_t id,
                                      const RecordShape& shape, uint64_t slots, uint64_t bytes) {
  std::unique_ptr<File> file = env->Open(path, OpenMode::kCreate, direct);
  file->Allocate(bytes);
  AlignedBuffer blocks(kDataOffset);
  EncodeHeader({id, shape.row_bytes, slots}, blocks.data());
  file->Write(0, kDataOffset, blocks.data());
  file->Sync();
  return file;
}

void Segment::Scan(uint64_t first, uint64_t slots,
                   const std::function<bool(uint64_t, const char*)>& fn) const {
  const size_t record_bytes = shape_.record_bytes;
  slots = std::min(slots, MostSlots());
  if (first >= slots) return;
  // If only few records are read, for example tombstones, the buffer is small: clearing a buffer of
  // a megabyte would take longer than the read.
  const uint64_t all = RoundUp(OffsetOf(slots)) - RoundDown(OffsetOf(first));
  AlignedBuffer buffer(std::min<uint64_t>(std::max(kScanBytes, record_bytes + 2 * kBlock), all));
  uint64_t slot = first;
  while (slot < slots) {
    const uint64_t begin = RoundDown(OffsetOf(slot));
    const uint64_t want = RoundUp(OffsetOf(slots)) - begin;
    const size_t got = file_->Read(begin, std::min<uint64_t>(buffer.size(), want), buffer.data());
    const uint64_t before = slot;
    for (; slot < slots && OffsetOf(slot) + record_bytes <= begin + got; ++slot) {
      if (!fn(slot, buffer.data() + (OffsetOf(slot) - begin))) return;
    }
    if (slot == before) return;  // the file ends
  }
}

bool Segment::LoadFooter(uint64_t slots, SegmentKeys* out, uint64_t* bad_offset) const {
  const uint64_t size = file_->Size();
  *bad_offset = size < kDataOffset + kBlock ? 0 : size - kBlock;
  if (size < kDataOffset + kBlock || size % kBlock != 0) return false;
  AlignedBuffer block(kBlock);
  Trailer trailer;
  if (file_->Read(size - kBlock, kBlock, block.data()) != kBlock ||
      !DecodeTrailer(id_, block.data(), &trailer) || trailer.slots != slots ||
      slots > MostSlots() || slots > kMaxSlots || trailer.tombstone_slots > slots) {
    return false;
  }
  // Check that the footer begins at WriteFooter's offset and extends to the trailer. Without this
  // check, a damaged size could cause an allocation that is larger than the file.
  const size_t bytes = FooterBytes(trailer);
  if (trailer.footer_offset != RoundUp(OffsetOf(slots)) ||
      trailer.footer_offset + RoundUp(bytes) + kBlock != size) {
    return false;
  }
  *bad_offset = trailer.footer_offset;
  AlignedBuffer footer(std::max(bytes, kBlock));
  if (bytes != 0 && file_->Read(trailer.footer_offset, RoundUp(bytes), footer.data()) < bytes) {
    return false;
  }
  if (Crc32c(0, footer.data(), bytes) != trailer.footer_crc) return false;
  out->keys.resize(slots);
  out->tombstone_slots.resize(trailer.tombstone_slots);
  const size_t key_bytes = slots * sizeof(int64_t);
  CopyBytes(out->keys.data(), footer.data(), key_bytes);
  CopyBytes(out->tombstone_slots.data(), footer.data() + key_bytes, bytes - key_bytes);
  return true;
}

SegmentKeys Segment::LoadKeys(uint64_t slots) const {
  SegmentKeys out;
  uint64_t bad_offset = 0;
  if (LoadFooter(slots, &out, &bad_offset) && LoadTombstones(&out)) return out;
  out = ScanKeys(slots, slots + 1);
  if (out.keys.size() > slots) {
    throw Corruption("the manifest says " + std::to_string(slots) + " records, and there are more",
                     file_->path(), OffsetOf(slots));
  }
  out.rebuilt = true;
  return out;
}

// Returns false if the footer's list of tombstone records is wrong. Throws Corruption if a record
// is damaged.
bool Segment::LoadTombstones(SegmentKeys* out) const {
  const std::vector<uint32_t>& wanted = out->tombstone_slots;
  for (size_t t = 0; t < wanted.size(); ++t) {
    if (wanted[t] >= out->keys.size() || (t > 0 && wanted[t] <= wanted[t - 1])) return false;
  }
  out->tombstones.reserve(wanted.size());
  for (size_t t = 0; t < wanted.size();) {  // neighbours in one go
    size_t end = t + 1;
    while (end < wanted.size() && wanted[end] == wanted[end - 1] + 1) ++end;
    bool tombstones = true;
    Scan(wanted[t], uint64_t{wanted[end - 1]} + 1, [&](uint64_t slot, const char* record) {
      if (!Valid(slot, record)) throw Damage(slot);
      RecordHeader header;
      std::memcpy(&header, record, sizeof header);
      tombstones = header.kind == kTombstoneRecord;
      if (tombstones) out->tombstones.push_back(TombstonesOf(record));
      return tombstones;
    });
    if (!tombstones) return false;
    if (out->tombstones.size() != end) throw Damage(wanted[out->tombstones.size()]);
    t = end;
  }
  return true;
}

SegmentKeys Segment::ScanKeys(uint64_t synced, uint64_t slots) const {
  SegmentKeys out;
  Scan(0, slots, [&](uint64_t slot, const char* record) {
    if (!Valid(slot, record)) return false;
    RecordHeader header;
    std::memcpy(&header, record, sizeof header);
    out.keys.push_back(header.key);
    if (header.kind == kTombstoneRecord) {
      out.tombstone_slots.push_back(static_cast<uint32_t>(slot));
      out.tombstones.push_back(TombstonesOf(record));
    }
    return true;
  });
  if (out.keys.size() < synced) {
    const uint64_t end = out.keys.size();
    if (end < MostSlots()) throw Damage(end);
    throw Corruption("the file ends before record " + std::to_string(end), file_->path(),
                     OffsetOf(end));
  }
  return out;
}

SyncMark Segment::LoadMark() const {
  AlignedBuffer blocks(2 * kBlock);
  if (file_->Read(kBlock, 2 * kBlock, blocks.data()) != 2 * kBlock) {
    throw Corruption("the file is cut off within its marks", file_->path(), kBlock);
  }
  return DecodeMarks(id_, blocks.data(), file_->path());
}

void Segment::WriteFooter(const std::vector<int64_t>& keys,
                          const std::vector<uint32_t>& tombstone_slots) {
  Trailer trailer{keys.size(), tombstone_slots.size(), RoundUp(OffsetOf(keys.size())), 0};
  const size_t bytes = FooterBytes(trailer);
  const size_t key_bytes = keys.size() * sizeof(int64_t);
  AlignedBuffer footer(RoundUp(bytes) + kBlock);
  CopyBytes(footer.data(), keys.data(), key_bytes);
  CopyBytes(footer.data() + key_bytes, tombstone_slots.data(), bytes - key_bytes);
  trailer.footer_crc = Crc32c(0, footer.data(), bytes);
  EncodeTrailer(id_, trailer, footer.data() + RoundUp(bytes));
  file_->Write(trailer.footer_offset, footer.size(), footer.data());
  file_->Truncate(trailer.footer_offset + footer.size());
}

void Segment::Verify(uint64_t slots, bool sealed, std::vector<Corruption>* problems) const {
  AlignedBuffer block(kBlock);
  try {
    file_->Read(0, kBlock, block.data());
    DecodeHeader(block.data(), file_->path());
  } catch (const Corruption& problem) {
    problems->push_back(problem);
  }
  SegmentKeys footer;
  uint64_t bad_offset = 0;
  const bool has_footer = sealed && LoadFooter(slots, &footer, &bad_offset);
  if (sealed && !has_footer) {
    problems->push_back(
        Corruption("the footer does not match its checksum", file_->path(), bad_offset));
  }
  uint64_t seen = 0, damaged = 0;
  size_t tombstone = 0;  // of those in the footer, the next
  const auto report = [&](const Corruption& problem) {
    if (++damaged <= kMostReported) problems->push_back(problem);
  };
  Scan(0, slots, [&](uint64_t slot, const char* record) {
    ++seen;
    RecordHeader header;
    std::memcpy(&header, record, sizeof header);
    const std::vector<uint32_t>& listed = footer.tombstone_slots;
    const bool erases = tombstone < listed.size() && listed[tombstone] == slot;
    tombstone += erases ? 1 : 0;
    if (!Valid(slot, record)) {
      report(Damage(slot));
    } else if (has_footer &&
               (footer.keys[slot] != header.key || erases != (header.kind == kTombstoneRecord))) {
      report(Corruption("the footer has something else for record " + std::to_string(slot),
                        file_->path(), OffsetOf(slot)));
    }
    return true;
  });
  if (damaged > kMostReported) {
    problems->push_back(Corruption("and " + std::to_string(damaged - kMostReported) +
                                       " more records, " + std::to_string(damaged) + " in all",
                                   file_->path(), kDataOffset));
  }
  if (seen < slots) {
    problems->push_back(Corruption("the file ends before record " + std::to_string(seen),
                                   file_->path(), OffsetOf(seen)));
  }
}

}  // namespace msrec
