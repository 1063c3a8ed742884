// SPDX-License-Identifier: Apache-2.0
//
// Opens an SsdTier: reads the list of segments from the manifest, and replays the segments' keys in
// the order of the log. The segment that was last when the process ended is read record by record.
// If the tier is opened for writing, the last segment is sealed after its valid records, so that no
// new record ever follows an incompletely written record.
//
// The directory is locked before its manifest and segments are read, because another process may
// change an unlocked directory. A count or an offset in a file is checked against the file's size.
#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <unordered_set>

#include "tier/aligned_buffer.h"
#include "tier/ssd_tier.h"
#include "util/background.h"

namespace msrec {
namespace {

constexpr uint64_t kMinSegment = uint64_t{32} << 20;
constexpr uint64_t kMinSlots = 4;
constexpr uint64_t kMaxSegment = uint64_t{4} << 30;

// A disk reads kMinExtent bytes almost as fast as one block.
constexpr size_t kMinExtent = 32 << 10;

// Limit on the total buffer size of reads in flight. A higher limit would not make a disk faster.
constexpr size_t kMaxReadBuffers = size_t{128} << 20;

constexpr uint64_t kMaxManifestBytes = uint64_t{256} << 20;  // of some million segments

std::string ManifestPath(const std::string& directory) { return directory + "/MANIFEST"; }

Manifest LoadManifest(Env* env, const std::string& directory) {
  const std::string path = ManifestPath(directory);
  const std::unique_ptr<File> file = env->Open(path, OpenMode::kRead, false);
  const uint64_t bytes = file->Size();
  if (bytes > kMaxManifestBytes) {
    throw Corruption("a manifest does not have " + std::to_string(bytes) + " bytes", path, 0);
  }
  std::string text(bytes, '\0');
  text.resize(file->Read(0, text.size(), &text[0]));
  return DecodeManifest(text, path);
}

size_t MaxExtent(const RecordShape& shape) {
  return std::max<size_t>(kMinExtent, RoundUp(shape.record_bytes) + kBlock);
}

unsigned Depth(const SsdOptions& options, const RecordShape& shape) {
  const size_t most = std::max<size_t>(1, kMaxReadBuffers / MaxExtent(shape));
  return static_cast<unsigned>(std::min<size_t>(options.queue_depth, most));
}

void RequireOption(bool good, const std::string& what) {
  if (!good) throw std::invalid_argument(what);
}

}  // namespace

// Checks the options that do not depend on the directory.
SsdOptions SsdTier::Checked(SsdOptions o) {
  RequireOption(!o.path.empty(), "path must not be empty");
  while (o.path.size() > 1 && o.path.back() == '/') o.path.pop_back();
  RequireOption(o.row_bytes <= kMaxRowBytes,
                "row_bytes must be at most 16 MiB, got " + std::to_string(o.row_bytes));
  RequireOption(o.queue_depth >= 1 && o.queue_depth <= 4096,
                "queue_depth must be in [1, 4096], got " + std::to_string(o.queue_depth));
  RequireOption(o.gc_ratio > 1.05 && o.gc_ratio <= 100,
                "gc_ratio must be in (1.05, 100], got " + std::to_string(o.gc_ratio));
  return o.row_bytes == 0 ? o : Sized(o);
}

// Requires: row_bytes is known.
SsdOptions SsdTier::Sized(SsdOptions o) {
  const RecordShape shape(o.row_bytes);
  if (o.segment_bytes == 0) {
    o.segment_bytes = std::min(std::max(o.max_bytes / 256, kMinSegment), kMaxSegment);
    // If max_bytes is small, segments are small, but a segment has room for at least a few large
    // rows.
    if (o.max_bytes != 0) o.segment_bytes = std::min(o.segment_bytes, o.max_bytes / 16);
    o.segment_bytes = std::max<uint64_t>(o.segment_bytes, 16 * o.row_bytes);
    while (shape.SlotsIn(RoundUp(o.segment_bytes)) < kMinSlots) o.segment_bytes += kBlock;
  }
  o.segment_bytes = RoundUp(o.segment_bytes);
  const uint64_t slots = shape.SlotsIn(o.segment_bytes);
  RequireOption(slots >= kMinSlots && slots <= kMaxSlots,
                "segment_bytes must have room for 4 rows and at most 2^32, got " +
                    std::to_string(o.segment_bytes));
  RequireOption(o.max_bytes == 0 || o.max_bytes >= (kSpareForWrite + 4) * o.segment_bytes,
                "max_bytes must be at least " + std::to_string(kSpareForWrite + 4) +
                    " segments of " + std::to_string(o.segment_bytes) + " bytes, got " +
                    std::to_string(o.max_bytes));
  return o;
}

SsdTier::Opening SsdTier::Open(const SsdOptions& options, Env* env) {
  Opening out;
  SsdOptions& o = out.options;
  o = Checked(options);
  const std::string path = ManifestPath(o.path);
  const bool must_exist = o.row_bytes == 0 || o.read_only;
  const auto require_there = [&] {
    out.there = env->Exists(path);
    if (must_exist && !out.there) throw IoError(ENOENT, "no SSD tier is at", o.path);
  };
  if (must_exist) require_there();  // or else nothing is created
  if (!o.read_only) env->CreateDirectory(o.path);
  out.lock = env->Lock(o.path + "/LOCK", !o.read_only);
  require_there();
  if (!out.there) return out;
  out.manifest = LoadManifest(env, o.path);
  const size_t there = out.manifest.row_bytes;
  if (o.row_bytes == 0) {
    o.row_bytes = there;
    o = Sized(o);
  }
  RequireOption(o.row_bytes == there, "row_bytes must be " + std::to_string(there) + ", as " +
                                          o.path + " has, got " + std::to_string(o.row_bytes));
  const RecordShape shape(there);
  for (const Manifest::Entry& entry : out.manifest.segments) {
    const std::string segment_path = o.path + "/" + SegmentName(entry.id);
    if (!env->Exists(segment_path)) {
      throw Corruption("the segment is missing", segment_path, 0);
    }
    const OpenMode mode = entry.sealed || o.read_only ? OpenMode::kRead : OpenMode::kReadWrite;
    out.segments.push_back(
        std::make_shared<Segment>(env->Open(segment_path, mode, o.direct), entry.id, shape));
  }
  return out;
}

int SsdTier::SlotBits(const Opening& opening) {
  uint64_t most = RecordShape(opening.options.row_bytes).SlotsIn(opening.options.segment_bytes);
  for (size_t i = 0; i < opening.segments.size(); ++i) {  // some have more room, perhaps
    const Manifest::Entry& entry = opening.manifest.segments[i];
    const Segment& segment = *opening.segments[i];
    most = std::max(most,
                    entry.sealed ? entry.slots : std::min(segment.capacity(), segment.MostSlots()));
  }
  int bits = 1;
  while (most >> bits != 0) ++bits;  // at most 32: all of these are at most kMaxSlots
  return bits;
}

SsdTier::SsdTier(const SsdOptions& options, Env* env) : SsdTier(Open(options, env), env) {}

SsdTier::SsdTier(Opening opening, Env* env)
    : options_(opening.options),
      env_(env),
      lock_(std::move(opening.lock)),
      shape_(options_.row_bytes),
      slots_per_segment_(shape_.SlotsIn(options_.segment_bytes)),
      slot_bits_(SlotBits(opening)),
      reader_(MaxExtent(shape_), Depth(options_, shape_), options_.io_uring),
      segments_(std::make_shared<SegmentTable>()) {
  Recover(opening);
  if (!options_.read_only && options_.background_gc) {
    collector_ = StartThread("collect garbage", [this] { CollectorMain(); });
  }
}

void SsdTier::Recover(const Opening& opening) {
  if (!opening.there) {
    for (const std::string& name : env_->List(options_.path)) {
      if (IsSegmentName(name)) {
        throw Corruption("the manifest is missing, but there are segments",
                         ManifestPath(options_.path), 0);
      }
    }
    StoreManifest(*segments_);
    return;
  }
  next_id_ = opening.manifest.next_id;
  bool had_open = false;
  const auto table = std::make_shared<SegmentTable>();
  segments_ = table;  // nobody reads it yet, so it may grow
  for (size_t i = 0; i < opening.segments.size(); ++i) {
    const Manifest::Entry& entry = opening.manifest.segments[i];
    const std::shared_ptr<Segment>& segment = opening.segments[i];
    SegmentKeys keys;
    if (entry.sealed) {
      keys = segment->LoadKeys(entry.slots);
      stats_.rebuilt_footers += keys.rebuilt;
    } else {
      keys = segment->ScanKeys(segment->LoadMark().slots, segment->capacity());
    }
    segment->slots = keys.keys.size();
    segment->sealed = entry.sealed;
    if (!entry.sealed && !options_.read_only) {
      had_open = true;
      if (segment->slots == 0) continue;  // a leftover from now on
      segment->WriteFooter(keys.keys, keys.tombstone_slots);
      segment->mutable_file()->Sync();
      segment->bytes = segment->file().Size();
      segment->sealed = true;
    }
    const size_t ordinal = table->size();
    Count(*segment, ordinal);
    table->push_back(segment);
    Replay(ordinal, keys);
  }
  if (options_.read_only) return;
  if (had_open) StoreManifest(*segments_);
  RemoveLeftovers();
}

std::vector<Corruption> SsdTier::VerifyFiles(const std::string& path, Env* env) {
  const std::unique_ptr<FileLock> lock = env->Lock(path + "/LOCK", false);
  std::vector<Corruption> problems;
  try {
    if (!env->Exists(ManifestPath(path))) {
      throw Corruption("the manifest is missing", ManifestPath(path), 0);
    }
    const Manifest manifest = LoadManifest(env, path);
    const RecordShape shape(manifest.row_bytes);
    for (const Manifest::Entry& entry : manifest.segments) {
      const std::string segment_path = path + "/" + SegmentName(entry.id);
      try {
        if (!env->Exists(segment_path)) {
          throw Corruption("the segment is missing", segment_path, 0);
        }
        const Segment segment(env->Open(segment_path, OpenMode::kRead, false), entry.id, shape);
        const uint64_t slots = entry.sealed ? entry.slots : segment.LoadMark().slots;
        segment.Verify(slots, entry.sealed, &problems);
      } catch (const Corruption& problem) {
        problems.push_back(problem);
      }
    }
  } catch (const Corruption& problem) {
    problems.push_back(problem);
  }
  return problems;
}

void SsdTier::Replay(size_t ordinal, const SegmentKeys& keys) {
  Segment& segment = *(*segments_)[ordinal];
  segment.tombstone_slots = keys.tombstone_slots.size();
  const size_t n = keys.keys.size();
  size_t tombstone = 0;
  for (size_t slot = 0; slot < n; ++slot) {
    if (slot + KeyPositions::kAhead < n) index_.Prefetch(keys.keys[slot + KeyPositions::kAhead]);
    if (tombstone < keys.tombstone_slots.size() && keys.tombstone_slots[tombstone] == slot) {
      for (const Tombstone& each : keys.tombstones[tombstone]) {
        const uint64_t before = index_.Erase(each.key);
        if (before != KeyPositions::kNone) --SegmentOf(before).live;
      }
      ++tombstone;
      continue;
    }
    const uint64_t before = index_.Put(keys.keys[slot], PositionOf(ordinal, slot));
    if (before != KeyPositions::kNone) --SegmentOf(before).live;
    ++segment.live;
  }
}

void SsdTier::RemoveLeftovers() {
  std::unordered_set<std::string> known;
  for (const auto& segment : *segments_) known.insert(SegmentName(segment->id()));
  for (const std::string& name : env_->List(options_.path)) {
    if (IsSegmentName(name) && known.count(name) == 0) env_->Remove(options_.path + "/" + name);
  }
}

void SsdTier::StoreManifest(const SegmentTable& segments) {
  lock_->Check();  // of a directory that somebody else has made anew
  Manifest manifest;
  manifest.row_bytes = shape_.row_bytes;
  manifest.next_id = next_id_;
  for (const auto& segment : segments) {
    if (segment == nullptr) continue;
    manifest.segments.push_back({segment->id(), segment->sealed, segment->slots});
  }
  std::sort(manifest.segments.begin(), manifest.segments.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  const std::string text = EncodeManifest(manifest);
  const std::string path = ManifestPath(options_.path);
  {
    const std::unique_ptr<File> file = env_->Open(path + ".tmp", OpenMode::kCreate, false);
    file->Write(0, text.size(), text.data());
    file->Sync();
  }
  env_->Rename(path + ".tmp", path);
  env_->SyncDirectory(options_.path);
  manifest_stale_ = false;
}

size_t SsdTier::AddSegment(std::shared_ptr<Segment> segment) {
  auto table = std::make_shared<SegmentTable>(*segments_);
  size_t ordinal = 0;
  while (ordinal < table->size() && (*table)[ordinal] != nullptr) ++ordinal;
  Count(*segment, ordinal);
  if (ordinal == table->size()) table->emplace_back();
  (*table)[ordinal] = std::move(segment);
  segments_ = std::move(table);
  return ordinal;
}

void SsdTier::Count(const Segment& segment, size_t ordinal) {
  if (PositionOf(ordinal + 1, 0) > KeyPositions::kNone) {
    throw IoError(EFBIG, "too many segments; use larger segment_bytes:", options_.path);
  }
  disk_bytes_ += segment.bytes;
  used_slots_ += segment.slots;
  ++segment_count_;
}

}  // namespace msrec
