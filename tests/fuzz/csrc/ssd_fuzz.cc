// SPDX-License-Identifier: Apache-2.0
//
// An SSD tier's directory that somebody changed, with checksums that are right again. An input is
// changes of a good directory:
//
//   | flags 1 | change... |   flags: 1 closed and not killed, 2 checksums stay wrong, 4 compacted
//   change: | kind 1 | file 1 | place 2 | offset 2 | bytes 8 |
#include <set>
#include <stdexcept>

#include "fuzzer.h"
#include "memory_env.h"
#include "tier/ssd_tier.h"
#include "util/crc32c.h"

namespace msrec {
namespace {

constexpr size_t kRow = 21;
constexpr size_t kBlockCrc = 12, kBlockBody = 16, kBlockBodyBytes = 40;
const char kPath[] = "/tier";

SsdOptions Options() {
  SsdOptions options;
  options.path = kPath;
  options.row_bytes = kRow;
  options.segment_bytes = 28 << 10;
  options.direct = options.io_uring = options.background_gc = false;
  options.queue_depth = 4;
  return options;
}

std::vector<int64_t> Keys(uint64_t first, uint64_t end) {
  std::vector<int64_t> keys;
  for (uint64_t key = first; key < end; ++key) {
    keys.push_back(static_cast<int64_t>(key * 0x9E3779B97F4A7C15));
  }
  return keys;
}

using Directory = std::map<std::string, std::string>;

Directory Copy(const MemoryEnv& env) {
  Directory found;
  for (const auto& [path, text] : env.files) found[path] = *text;
  return found;
}

// Old versions, tombstones and several segments; the last one open where `killed`.
const Directory& Good(bool killed) {
  static const auto both = [] {
    std::pair<Directory, Directory> made;
    MemoryEnv env;
    SsdTier tier(Options(), &env);
    const std::string rows(kRow * 1000, 'r');
    for (uint64_t first : {0, 60, 200, 100, 250}) {
      const std::vector<int64_t> keys = Keys(first, first + 100);
      tier.Write(keys.data(), keys.size(), rows.data());
      tier.Erase(keys.data() + 20, 35);
    }
    tier.Flush();
    made.first = Copy(env);
    tier.Close();
    made.second = Copy(env);
    return made;
  }();
  return killed ? both.first : both.second;
}

void PutCrc(std::string* text, size_t at, uint32_t crc) {
  std::memcpy(&(*text)[at], &crc, sizeof crc);
}

uint64_t WordAt(const std::string& text, size_t at) {
  uint64_t word;
  std::memcpy(&word, &text[at], sizeof word);
  return word;
}

void FixBlock(std::string* text, size_t block) {
  PutCrc(text, block + kBlockCrc, Crc32c(0, &(*text)[block + kBlockBody], kBlockBodyBytes));
}

void FixSegment(uint64_t id, std::string* text) {
  const RecordShape shape(kRow);
  if (text->size() < kDataOffset + kBlock) return;
  for (size_t block = 0; block < kDataOffset; block += kBlock) {
    if ((*text)[block] != 0) FixBlock(text, block);
  }
  for (uint64_t slot = 0; slot < shape.MostIn(text->size()); ++slot) {
    char* record = &(*text)[shape.OffsetOf(slot)];
    uint32_t kind;
    std::memcpy(&kind, record + 4, sizeof kind);
    if (kind == 0 || kind > 2) continue;  // nothing was written there
    const uint64_t place[2] = {id, slot};
    const uint32_t crc = Crc32c(Crc32c(0, place, sizeof place), record + 4, shape.record_bytes - 4);
    std::memcpy(record, &crc, sizeof crc);
  }
  const size_t trailer = text->size() / kBlock * kBlock - kBlock;
  if (text->compare(trailer, 4, "MREC") != 0) return;
  const uint64_t footer = WordAt(*text, trailer + kBlockBody + 24);
  const uint64_t slots = WordAt(*text, trailer + kBlockBody + 8);
  const uint64_t tombstones = WordAt(*text, trailer + kBlockBody + 16);
  const uint64_t bytes = slots * 8 + tombstones * 4;
  if (slots < text->size() && tombstones < text->size() && footer <= text->size() &&
      bytes <= text->size() - footer) {
    const uint64_t crc = Crc32c(0, &(*text)[footer], bytes);
    std::memcpy(&(*text)[trailer + kBlockBody + 32], &crc, sizeof crc);
  }
  FixBlock(text, trailer);
}

void Fix(Directory* directory) {
  for (auto& [path, text] : *directory) {
    const size_t digits = path.rfind("segment-");
    if (digits != std::string::npos) FixSegment(std::stoull(path.substr(digits + 8)), &text);
  }
  std::string& manifest = (*directory)[std::string(kPath) + "/MANIFEST"];
  const size_t end = manifest.rfind("crc32c ");
  if (end == std::string::npos) return;
  manifest.resize(end);
  manifest += "crc32c " + std::to_string(Crc32c(0, manifest.data(), end)) + "\n";
}

// Returns an offset to change in a file: mostly in a block, a record or the footer, else any byte.
size_t Place(const std::string& text, uint16_t place, uint16_t offset) {
  const size_t size = text.size();
  if (size == 0) return 0;
  const RecordShape shape(kRow);
  switch (place % 5) {
    case 0:
      return offset % size;
    case 1:
      return (place / 5 % 3 * kBlock + offset % 64) % size;
    case 2:
      return (shape.OffsetOf(place / 5 % 600) + offset % shape.record_bytes) % size;
    case 3:
      return (size - std::min(size, kBlock) + offset % 64) % size;
    default:
      return size - 1 - (kBlock + offset) % size;
  }
}

// Replaces the number at or behind a place of a manifest.
void ChangeNumber(uint64_t number, size_t at, std::string* text) {
  constexpr char kDigits[] = "0123456789";
  const size_t begin = text->find_first_of(kDigits, at);
  if (begin == std::string::npos) return;
  const size_t end = std::min(text->find_first_not_of(kDigits, begin), text->size());
  text->replace(begin, end - begin, std::to_string(number));
}

void Change(FuzzInput* input, Directory* directory) {
  const auto kind = input->Take<uint8_t>();
  auto file = std::next(directory->begin(), input->Take<uint8_t>() % directory->size());
  std::string& text = file->second;
  const auto place = input->Take<uint16_t>(), offset = input->Take<uint16_t>();
  const std::string bytes = input->Bytes(8);
  const size_t at = Place(text, place, offset);
  switch (kind % 8) {
    case 0:
      text.resize(at / kBlock * kBlock);
      break;
    case 1:
      text.resize(std::min<size_t>(text.size() + offset % 9 * kBlock, 1 << 20));
      break;
    case 2:
      text.insert(at, bytes);
      break;
    case 3:
      text.erase(at, kind);
      break;
    case 4: {
      const auto other = std::next(directory->begin(), place % directory->size());
      std::swap(text, other->second);
      break;
    }
    case 5:
      if (!text.empty()) text.replace(at, 1, bytes.substr(0, 1));
      break;
    case 6:
      if (file->first.find("MANIFEST") != std::string::npos) {
        ChangeNumber(FuzzInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size())
                         .Take<uint64_t>(),
                     at, &text);
        break;
      }
      [[fallthrough]];
    default:
      for (size_t i = 0; i < bytes.size() && at + i < text.size(); ++i) text[at + i] = bytes[i];
  }
}

// Checks a tier that opened: it may have any rows, but each must be whole.
void Use(SsdTier* tier, bool writable, bool compact) {
  const std::vector<int64_t> keys = tier->Keys();
  if (keys.size() != tier->size()) throw std::logic_error("size() is not the number of keys");
  std::string rows(keys.size() * kRow, '\0');
  std::unique_ptr<bool[]> found(new bool[keys.size() + 1]);
  tier->Read(keys.data(), keys.size(), &rows[0], found.get());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!found[i]) throw std::logic_error("a key without a row");
  }
  if (!writable) return;
  const std::vector<int64_t> more = Keys(0, 50);
  tier->Write(more.data(), more.size(), std::string(kRow * 50, 'w').data());
  tier->Erase(more.data(), 10);
  if (compact) tier->Compact();
  tier->Verify();
  tier->Close();
}

void Try(MemoryEnv* env, bool read_only, bool compact) {
  SsdOptions options = Options();
  options.read_only = read_only;
  if (read_only) options.row_bytes = 0;
  try {
    SsdTier tier(options, env);
    if (tier.row_bytes() == kRow) Use(&tier, !read_only, compact);
  } catch (const IoError&) {
  } catch (const Corruption&) {
  } catch (const std::invalid_argument&) {  // the manifest has rows of another size
  }
}

void FuzzSsd(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const auto flags = input.Take<uint8_t>();
  Directory directory = Good((flags & 1) == 0);
  for (int changes = 0; !input.empty() && changes < 40; ++changes) Change(&input, &directory);
  if ((flags & 2) == 0) Fix(&directory);
  MemoryEnv env;
  for (const auto& [path, text] : directory) env.files[path] = std::make_shared<std::string>(text);
  try {
    SsdTier::VerifyFiles(kPath, &env);
  } catch (const IoError&) {
  }
  Try(&env, true, false);
  Try(&env, false, (flags & 4) != 0);
  Try(&env, false, false);  // what it has written
}

// The text of a manifest, signed here.
void FuzzManifest(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  text += "crc32c " + std::to_string(Crc32c(0, text.data(), text.size())) + "\n";
  try {
    if (EncodeManifest(DecodeManifest(text, "path")) != text) {
      throw std::logic_error("a manifest that is written otherwise");
    }
  } catch (const Corruption&) {
  }
}

const AddFuzzTarget kSsd("ssd", FuzzSsd);
const AddFuzzTarget kManifest("ssd_manifest", FuzzManifest);

}  // namespace
}  // namespace msrec
