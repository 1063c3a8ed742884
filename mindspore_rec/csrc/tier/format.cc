// SPDX-License-Identifier: Apache-2.0
#include "tier/format.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "util/crc32c.h"

namespace msrec {
namespace {

constexpr uint32_t kVersion = 1;
constexpr char kHeaderMagic[9] = "MRECSEG1";
constexpr char kMarkMagic[9] = "MRECSYN1";
constexpr char kTrailerMagic[9] = "MRECEND1";

constexpr uint64_t kMaxId = uint64_t{1} << 62;

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the files are little-endian"
#endif

// The start of a header, mark or trailer block; the rest of the block is zeros.
struct BlockStart {
  char magic[8];
  uint32_t version;
  uint32_t crc;  // of what follows
  uint64_t segment;
  uint64_t values[4];
};

void EncodeBlock(const char* magic, uint64_t segment, const uint64_t (&values)[4], char* block) {
  BlockStart b{};
  std::memcpy(b.magic, magic, sizeof b.magic);
  b.version = kVersion;
  b.segment = segment;
  std::memcpy(b.values, values, sizeof b.values);
  b.crc = Crc32c(0, &b.segment, sizeof b.segment + sizeof b.values);
  std::memset(block, 0, kBlock);
  std::memcpy(block, &b, sizeof b);
}

bool DecodeBlock(const char* magic, const char* block, BlockStart* b) {
  std::memcpy(b, block, sizeof *b);
  return std::memcmp(b->magic, magic, sizeof b->magic) == 0 && b->version == kVersion &&
         b->crc == Crc32c(0, &b->segment, sizeof b->segment + sizeof b->values);
}

uint32_t RecordCrc(uint64_t segment, uint64_t slot, const char* record, size_t record_bytes) {
  const uint64_t place[2] = {segment, slot};
  const size_t skip = sizeof(RecordHeader::crc);
  return Crc32c(Crc32c(0, place, sizeof place), record + skip, record_bytes - skip);
}

}  // namespace

RecordShape::RecordShape(size_t row)
    : row_bytes(row),
      payload_bytes(std::max((row + 7) / 8 * 8, sizeof(Tombstone))),
      record_bytes(sizeof(RecordHeader) + payload_bytes),
      tombstones(payload_bytes / sizeof(Tombstone)) {}

uint64_t RecordShape::SlotsIn(uint64_t segment_bytes) const {
  const uint64_t administration = kDataOffset + 3 * kBlock;
  const uint64_t each = record_bytes + sizeof(int64_t) + sizeof(uint32_t);  // with its footer
  return segment_bytes < administration + each ? 0 : (segment_bytes - administration) / each;
}

uint64_t RecordShape::MostIn(uint64_t file_bytes) const {
  return file_bytes < kDataOffset ? 0 : (file_bytes - kDataOffset) / record_bytes;
}

void RecordShape::Encode(uint64_t segment, uint64_t slot, RecordKind kind, int64_t key,
                         const void* payload, char* out) const {
  const size_t used = kind == kRowRecord ? row_bytes : static_cast<size_t>(key) * sizeof(Tombstone);
  std::memcpy(out + sizeof(RecordHeader), payload, used);
  std::memset(out + sizeof(RecordHeader) + used, 0, payload_bytes - used);
  RecordHeader header{0, kind, key};
  std::memcpy(out, &header, sizeof header);
  header.crc = RecordCrc(segment, slot, out, record_bytes);
  std::memcpy(out, &header.crc, sizeof header.crc);
}

bool RecordShape::Valid(uint64_t segment, uint64_t slot, const char* record) const {
  RecordHeader header;
  std::memcpy(&header, record, sizeof header);
  if (header.crc != RecordCrc(segment, slot, record, record_bytes)) return false;
  if (header.kind == kRowRecord) return true;
  return header.kind == kTombstoneRecord && header.key >= 0 &&
         static_cast<uint64_t>(header.key) <= tombstones;
}

void EncodeHeader(const SegmentHeader& header, char* block) {
  EncodeBlock(kHeaderMagic, header.id, {header.row_bytes, header.slots, 0, 0}, block);
}

SegmentHeader DecodeHeader(const char* block, const std::string& path) {
  BlockStart b;
  if (!DecodeBlock(kHeaderMagic, block, &b)) {
    throw Corruption("this is not the header of a segment", path, 0);
  }
  return {b.segment, b.values[0], b.values[1]};
}

void EncodeMark(uint64_t segment, const SyncMark& mark, char* block) {
  EncodeBlock(kMarkMagic, segment, {mark.epoch, mark.slots, 0, 0}, block);
}

SyncMark DecodeMarks(uint64_t segment, const char* blocks, const std::string& path) {
  SyncMark best;
  int bad = 0;
  for (int i = 0; i < 2; ++i) {
    const char* block = blocks + i * kBlock;
    BlockStart b;
    if (DecodeBlock(kMarkMagic, block, &b) && b.segment == segment) {
      if (b.values[0] > best.epoch) best = {b.values[0], b.values[1]};
    } else if (std::any_of(block, block + kBlock, [](char c) { return c != 0; })) {
      ++bad;  // by power loss while it was written, one may be
    }
  }
  if (bad == 2) throw Corruption("neither mark of what was synced can be read", path, kBlock);
  return best;
}

size_t FooterBytes(const Trailer& trailer) {
  return trailer.slots * sizeof(int64_t) + trailer.tombstone_slots * sizeof(uint32_t);
}

void EncodeTrailer(uint64_t segment, const Trailer& trailer, char* block) {
  EncodeBlock(kTrailerMagic, segment,
              {trailer.slots, trailer.tombstone_slots, trailer.footer_offset, trailer.footer_crc},
              block);
}

bool DecodeTrailer(uint64_t segment, const char* block, Trailer* trailer) {
  BlockStart b;
  if (!DecodeBlock(kTrailerMagic, block, &b) || b.segment != segment) return false;
  *trailer = {b.values[0], b.values[1], b.values[2], static_cast<uint32_t>(b.values[3])};
  return true;
}

std::string EncodeManifest(const Manifest& manifest) {
  std::ostringstream text;
  text << "mindspore_rec ssd " << kVersion << "\n";
  text << "row_bytes " << manifest.row_bytes << "\n";
  text << "next_id " << manifest.next_id << "\n";
  for (const Manifest::Entry& entry : manifest.segments) {
    text << "segment " << entry.id;
    if (entry.sealed) {
      text << " sealed " << entry.slots << "\n";
    } else {
      text << " open\n";
    }
  }
  const std::string body = text.str();
  return body + "crc32c " + std::to_string(Crc32c(0, body.data(), body.size())) + "\n";
}

Manifest DecodeManifest(const std::string& text, const std::string& path) {
  const size_t end = text.rfind("crc32c ");
  const auto bad = [&](const std::string& what) {
    return Corruption(what, path, end == std::string::npos ? 0 : end);
  };
  if (end == std::string::npos ||
      text.substr(end) != "crc32c " + std::to_string(Crc32c(0, text.data(), end)) + "\n") {
    throw bad("the manifest does not match its checksum");
  }
  std::istringstream words(text.substr(0, end));
  std::string a, b;
  uint32_t version = 0;
  words >> a >> b >> version;
  if (version != kVersion) throw bad("format version " + std::to_string(version) + " is unknown");
  Manifest manifest;
  words >> a >> manifest.row_bytes >> b >> manifest.next_id;
  std::string word, state;
  for (uint64_t id; words >> word >> id >> state;) {
    uint64_t slots = 0;
    if (state == "sealed") words >> slots;
    manifest.segments.push_back({id, state == "sealed", slots});
  }
  if (EncodeManifest(manifest) != text) throw bad("the manifest is not one that is written here");
  if (manifest.row_bytes < 1 || manifest.row_bytes > kMaxRowBytes) {
    throw bad("row_bytes must be in [1, 16 MiB], got " + std::to_string(manifest.row_bytes));
  }
  if (manifest.next_id < 1 || manifest.next_id > kMaxId) {
    throw bad("next_id must be in [1, 2^62], got " + std::to_string(manifest.next_id));
  }
  uint64_t least = 1;
  for (size_t i = 0; i < manifest.segments.size(); ++i) {
    const Manifest::Entry& entry = manifest.segments[i];
    const std::string name = "segment " + std::to_string(entry.id);
    if (entry.id < least || entry.id >= manifest.next_id) {
      throw bad(name + " is not between the segment before it and next_id");
    }
    least = entry.id + 1;
    if (!entry.sealed && i + 1 != manifest.segments.size()) {
      throw bad(name + " is open and not the last one");
    }
    if (entry.slots > kMaxSlots) {
      throw bad(name + " cannot have " + std::to_string(entry.slots) + " records");
    }
  }
  return manifest;
}

std::string SegmentName(uint64_t id) {
  char name[40];
  std::snprintf(name, sizeof name, "segment-%08llu.seg", static_cast<unsigned long long>(id));
  return name;
}

bool IsSegmentName(const std::string& name) {
  return name.size() > 12 && name.compare(0, 8, "segment-") == 0 &&
         name.compare(name.size() - 4, 4, ".seg") == 0;
}

}  // namespace msrec
