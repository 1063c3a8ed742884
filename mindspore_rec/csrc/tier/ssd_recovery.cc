// SPDX-License-Identifier: Apache-2.0
//
// Opening an SsdTier: the manifest says which segments there are; their keys are replayed in the
// order of the log. The segment that was the last one when the process ended is read record by
// record; what is valid of it is sealed, so that nothing is ever written behind a torn tail.
#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "tier/aligned_buffer.h"
#include "tier/ssd_tier.h"

namespace msrec {
namespace {

constexpr size_t kMaxRowBytes = size_t{16} << 20;
constexpr uint64_t kMinSegment = uint64_t{32} << 20;
constexpr uint64_t kMaxSegment = uint64_t{4} << 30;

// A read of this many bytes costs the disk hardly more than one of a block.
constexpr size_t kMinExtent = 32 << 10;

std::string ManifestPath(const std::string& directory) { return directory + "/MANIFEST"; }

Manifest LoadManifest(Env* env, const std::string& directory) {
  const std::string path = ManifestPath(directory);
  const std::unique_ptr<File> file = env->Open(path, OpenMode::kRead, false);
  std::string text(file->Size(), '\0');
  text.resize(file->Read(0, text.size(), &text[0]));
  return DecodeManifest(text, path);
}

size_t MaxExtent(const RecordShape& shape) {
  return std::max<size_t>(kMinExtent, RoundUp(shape.record_bytes) + kBlock);
}

}  // namespace

SsdOptions SsdTier::Checked(SsdOptions o, Env* env) {
  const auto require = [](bool good, const std::string& what) {
    if (!good) throw std::invalid_argument(what);
  };
  require(!o.path.empty(), "path must not be empty");
  while (o.path.size() > 1 && o.path.back() == '/') o.path.pop_back();
  require(o.row_bytes <= kMaxRowBytes,
          "row_bytes must be at most 16 MiB, got " + std::to_string(o.row_bytes));
  require(o.queue_depth >= 1 && o.queue_depth <= 4096,
          "queue_depth must be in [1, 4096], got " + std::to_string(o.queue_depth));
  require(o.gc_ratio > 1.05 && o.gc_ratio <= 100,
          "gc_ratio must be in (1.05, 100], got " + std::to_string(o.gc_ratio));
  if (o.row_bytes == 0 || o.read_only) {
    if (!env->Exists(ManifestPath(o.path))) {
      throw IoError(ENOENT, "no SSD tier is at", o.path);
    }
    const uint64_t there = LoadManifest(env, o.path).row_bytes;
    if (o.row_bytes == 0) o.row_bytes = there;
  }
  if (o.segment_bytes == 0) {
    o.segment_bytes = std::min(std::max(o.max_bytes / 256, kMinSegment), kMaxSegment);
    // Small limits get small segments; a large row wants a few of its kind together.
    if (o.max_bytes != 0) o.segment_bytes = std::min(o.segment_bytes, o.max_bytes / 16);
    o.segment_bytes = std::max<uint64_t>(o.segment_bytes, 16 * o.row_bytes);
  }
  o.segment_bytes = RoundUp(o.segment_bytes);
  const uint64_t slots = RecordShape(o.row_bytes).SlotsIn(o.segment_bytes);
  require(slots >= 4 && slots < (uint64_t{1} << 32),
          "segment_bytes must have room for 4 rows and at most 2^32, got " +
              std::to_string(o.segment_bytes));
  require(o.max_bytes == 0 || o.max_bytes >= (kSpareForWrite + 4) * o.segment_bytes,
          "max_bytes must be at least " + std::to_string(kSpareForWrite + 4) + " segments of " +
              std::to_string(o.segment_bytes) + " bytes, got " + std::to_string(o.max_bytes));
  return o;
}

int SsdTier::SlotBits(const SsdOptions& options, const RecordShape& shape, Env* env) {
  uint64_t most = shape.SlotsIn(options.segment_bytes);
  if (env->Exists(ManifestPath(options.path))) {  // written with larger segments, perhaps
    for (const Manifest::Entry& entry : LoadManifest(env, options.path).segments) {
      most = std::max(most, entry.slots);
      if (entry.sealed) continue;
      const std::string path = options.path + "/" + SegmentName(entry.id);
      if (!env->Exists(path)) continue;  // Recover says so
      most = std::max(most, env->Open(path, OpenMode::kRead, false)->Size() / shape.record_bytes);
    }
  }
  int bits = 1;
  while (most >> bits != 0) ++bits;
  return bits;
}

SsdTier::SsdTier(const SsdOptions& options, Env* env)
    : options_(Checked(options, env)),
      env_(env),
      shape_(options_.row_bytes),
      slots_per_segment_(shape_.SlotsIn(options_.segment_bytes)),
      slot_bits_(SlotBits(options_, shape_, env)),
      reader_(MaxExtent(shape_), options_.queue_depth, options_.io_uring),
      segments_(std::make_shared<SegmentTable>()) {
  if (!options_.read_only) env_->CreateDirectory(options_.path);
  lock_ = env_->Lock(options_.path + "/LOCK", !options_.read_only);
  Recover();
  if (!options_.read_only && options_.background_gc) {
    collector_ = std::thread([this] { CollectorMain(); });
  }
}

void SsdTier::Recover() {
  const std::string path = ManifestPath(options_.path);
  if (!env_->Exists(path)) {
    for (const std::string& name : env_->List(options_.path)) {
      if (IsSegmentName(name)) {
        throw Corruption("the manifest is missing, but there are segments", path, 0);
      }
    }
    StoreManifest(*segments_);
    return;
  }
  const Manifest manifest = LoadManifest(env_, options_.path);
  if (manifest.row_bytes != options_.row_bytes) {
    throw std::invalid_argument("row_bytes must be " + std::to_string(manifest.row_bytes) +
                                ", as " + options_.path + " has, got " +
                                std::to_string(options_.row_bytes));
  }
  next_id_ = manifest.next_id;
  bool had_open = false;
  for (const Manifest::Entry& entry : manifest.segments) {
    const std::string segment_path = options_.path + "/" + SegmentName(entry.id);
    if (!env_->Exists(segment_path)) {
      throw Corruption("the segment is missing", segment_path, 0);
    }
    const OpenMode mode =
        entry.sealed || options_.read_only ? OpenMode::kRead : OpenMode::kReadWrite;
    auto segment = std::make_shared<Segment>(env_->Open(segment_path, mode, options_.direct),
                                             entry.id, shape_);
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
    Replay(AddSegment(segment), keys);
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
  constexpr size_t kAhead = 16;
  Segment& segment = *(*segments_)[ordinal];
  segment.tombstone_slots = keys.tombstone_slots.size();
  const size_t n = keys.keys.size();
  size_t tombstone = 0;
  for (size_t slot = 0; slot < n; ++slot) {
    if (slot + kAhead < n) index_.Prefetch(keys.keys[slot + kAhead]);
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
  for (const std::string& name : env_->List(options_.path)) {
    if (!IsSegmentName(name)) continue;
    const bool known = std::any_of(segments_->begin(), segments_->end(), [&](const auto& segment) {
      return segment != nullptr && SegmentName(segment->id()) == name;
    });
    if (!known) env_->Remove(options_.path + "/" + name);
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
  if (PositionOf(ordinal + 1, 0) > KeyPositions::kNone) {
    throw IoError(EFBIG, "too many segments; use larger segment_bytes:", options_.path);
  }
  if (ordinal == table->size()) table->emplace_back();
  disk_bytes_ += segment->bytes;
  used_slots_ += segment->slots;
  ++segment_count_;
  (*table)[ordinal] = std::move(segment);
  segments_ = std::move(table);
  return ordinal;
}

}  // namespace msrec
