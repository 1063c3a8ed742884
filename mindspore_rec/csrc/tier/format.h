// SPDX-License-Identifier: Apache-2.0
//
// The format of an SSD tier's files. All numbers are little-endian. The length of every file except
// the manifest is a multiple of 4096 bytes.
//
// segment-<id>.seg, a part of the log, immutable after it is sealed:
//
//   block 0     header: which segment of which shape
//   block 1, 2  marks: "the first n records are synced", written in turn, the higher epoch counts
//   block 3...  records, one behind the other, and zeros up to the next block
//   footer      sealed segments: the key of every record, then the numbers of those records that
//               are tombstones, and zeros up to the next block
//   last block  sealed segments: the trailer, which says where the footer is, and its checksum
//
// A record is | crc32c (4) | kind (4) | key (8) | payload |. A row's payload is the row, padded to
// a multiple of 8 bytes and to at least 16 bytes. A tombstone record lists erased keys. For each
// erased key, the payload of a tombstone record contains a tombstone: the key, and the id of the
// segment in which the erasure was first recorded. The field `key` of a tombstone record contains
// the number of tombstones. The checksum also covers the segment's id and the record's index, so a
// record is valid only at the place where it was written.
//
// The log consists of the records of all segments, in the order of the segments' ids. If a key has
// several records, the last record is used. Only the last segment may be unsealed.
//
// MANIFEST is a text file that lists the segments. The manifest is always replaced atomically. A
// segment file that is not in the list is a leftover and is removed. If a listed file is missing,
// opening fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tier/env.h"

namespace msrec {

constexpr size_t kBlock = 4096;
constexpr uint64_t kDataOffset = 3 * kBlock;

constexpr uint64_t RoundDown(uint64_t n) { return n / kBlock * kBlock; }
constexpr uint64_t RoundUp(uint64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

enum RecordKind : uint32_t { kRowRecord = 1, kTombstoneRecord = 2 };

constexpr size_t kMaxRowBytes = size_t{16} << 20;
constexpr uint64_t kMaxSlots = (uint64_t{1} << 32) - 1;  // of a segment

struct RecordHeader {
  uint32_t crc;
  uint32_t kind;
  int64_t key;  // of a row; of tombstones their number
};
static_assert(sizeof(RecordHeader) == 16, "part of the format");

struct Tombstone {
  int64_t key;
  uint64_t born;  // id of the segment where the erasure was first written
};
static_assert(sizeof(Tombstone) == 16, "part of the format");

// Sizes that depend on the size of a row. A row has 1 to kMaxRowBytes bytes.
struct RecordShape {
  explicit RecordShape(size_t row_bytes);

  size_t row_bytes;
  size_t payload_bytes;
  size_t record_bytes;
  size_t tombstones;  // that fit into a record

  uint64_t OffsetOf(uint64_t slot) const { return kDataOffset + slot * record_bytes; }
  // Number of records in a segment of `segment_bytes` bytes.
  uint64_t SlotsIn(uint64_t segment_bytes) const;
  // Maximum number of records in a file of `file_bytes` bytes. If a file states more records than
  // MostIn returns, the file is damaged.
  uint64_t MostIn(uint64_t file_bytes) const;

  // Writes record_bytes bytes to `out`. The payload of a row has row_bytes bytes. The payload of a
  // tombstone record is an array of tombstones, and `key` is the number of tombstones.
  void Encode(uint64_t segment, uint64_t slot, RecordKind kind, int64_t key, const void* payload,
              char* out) const;
  // True if `record` [record_bytes] is a valid record that Encode wrote for the same segment and
  // slot.
  bool Valid(uint64_t segment, uint64_t slot, const char* record) const;
};

struct SegmentHeader {
  uint64_t id;
  uint64_t row_bytes;
  uint64_t slots;  // records it has room for
};
void EncodeHeader(const SegmentHeader& header, char* block);
SegmentHeader DecodeHeader(const char* block, const std::string& path);  // throws Corruption

struct SyncMark {
  uint64_t epoch = 0;
  uint64_t slots = 0;
};
void EncodeMark(uint64_t segment, const SyncMark& mark, char* block);
// Decodes the sync marks in blocks 1 and 2. A block of zeros contains no sync mark. If neither
// block contains a sync mark, the result is a mark of 0 records. Throws Corruption if block 1 and
// block 2 are both damaged.
SyncMark DecodeMarks(uint64_t segment, const char* blocks, const std::string& path);

struct Trailer {
  uint64_t slots;
  uint64_t tombstone_slots;
  uint64_t footer_offset;
  uint32_t footer_crc;
};
// Requires: slots and tombstone_slots are at most kMaxSlots.
size_t FooterBytes(const Trailer& trailer);
void EncodeTrailer(uint64_t segment, const Trailer& trailer, char* block);
// Returns false if the block is damaged.
bool DecodeTrailer(uint64_t segment, const char* block, Trailer* trailer);

struct Manifest {
  struct Entry {
    uint64_t id;
    bool sealed;
    uint64_t slots;  // of a sealed one
  };
  uint64_t row_bytes = 0;
  uint64_t next_id = 1;
  std::vector<Entry> segments;  // by id
};
std::string EncodeManifest(const Manifest& manifest);
// Throws Corruption unless `text` is exactly what EncodeManifest writes for some valid log. In a
// valid log, row_bytes is in [1, kMaxRowBytes], segments are in the order of their ids, and all ids
// are below next_id. Only the last segment may be open, and each segment has at most kMaxSlots
// records. A correct checksum is not enough, because anyone can compute a checksum.
Manifest DecodeManifest(const std::string& text, const std::string& path);

std::string SegmentName(uint64_t id);
// True if `name` is the name of a segment file.
bool IsSegmentName(const std::string& name);

}  // namespace msrec
