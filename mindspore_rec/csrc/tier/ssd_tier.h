// SPDX-License-Identifier: Apache-2.0
//
// SsdTier: a Tier in a directory of files. The tier stores rows in a log of segments (see
// format.h). In memory, the tier has an exact index, which takes at most 16 bytes per row of a
// large tier (see key_positions.h). Writes are sequential. Reads are sorted, merged and sent to the
// disk many at a time. A background thread collects segments with many dead records.
//
// Guarantees, in addition to the guarantees of Tier:
//
//  * Read returns the newest row of a key. If the newest record of the key is damaged, Read throws
//    Corruption. Every record that is read from a file is checked by CRC32C, and the index points
//    only to the newest records.
//  * If a tier is opened after kill -9 or power loss, the tier contains all writes that Flush
//    acknowledged. Writes after the last Flush may be lost; if a write is lost, all later writes
//    are lost as well. An incomplete record at the end of the log is dropped. Damage before the end
//    of the log causes Corruption.
//  * If the disk is full or fails, or max_bytes is reached, writing throws IoError, and reading
//    still works. After a failed sync, the tier must be opened again before it can be written.
//    After errors other than a failed sync, the tier can still be written.
//  * While a tier is open for writing, its directory cannot be opened a second time, not even
//    read-only (ensured by a lock on the directory's LOCK file).
//  * A Scan reads the log in order, in blocks. A block has at most two megabytes, unless a single
//    row is larger. A Scan needs memory for a few blocks. If rows are appended as fast as the scan
//    reads them, the scan finally reads the remaining rows through the index.
//
// Any thread may call any method; Close makes all other calls end. A forked child must neither use
// nor destroy a tier of its parent, because the background thread exists only in the parent.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tier/batch_reader.h"
#include "tier/env.h"
#include "tier/format.h"
#include "tier/key_positions.h"
#include "tier/segment.h"
#include "tier/segment_writer.h"
#include "tier/tier.h"

namespace msrec {

struct SsdOptions {
  std::string path;            // directory; a tier that may write creates it if it is missing
  size_t row_bytes = 0;        // 0: the size in the existing tier
  uint64_t max_bytes = 0;      // limit of all segment files; 0: no limit
  uint64_t segment_bytes = 0;  // 0: Sized chooses the size
  bool direct = true;          // O_DIRECT: bypass the page cache
  bool read_only = false;
  bool io_uring = true;        // use io_uring if the system has it
  unsigned queue_depth = 128;  // most reads in flight; fewer if buffers would exceed 128 MiB
  double gc_ratio = 1.35;      // collect if the log has more records per live row
  bool background_gc = true;   // false: only Compact and writers without space collect
};

class SsdTier : public Tier {
 public:
  // Opens or creates the tier. Throws IoError or Corruption. Throws std::invalid_argument, with the
  // option's name, if an option is invalid. Throws std::runtime_error if the background thread
  // cannot be started. Requires: env outlives the tier.
  explicit SsdTier(const SsdOptions& options, Env* env = Env::Posix());
  ~SsdTier() override;  // Close, without its errors

  void Read(const int64_t* keys, size_t n, char* rows, bool* found) override;
  void Write(const int64_t* keys, size_t n, const char* rows) override;
  void Erase(const int64_t* keys, size_t n) override;
  void Flush() override;
  size_t size() const override;
  size_t row_bytes() const override { return shape_.row_bytes; }
  std::vector<int64_t> Keys() const override;
  std::unique_ptr<TierScan> Scan(bool exact) override;
  void Contains(const int64_t* keys, size_t n, bool* found) const override;
  void Clear() override;
  TierStats Stats() const override;

  // Collects every segment with dead records, so that only live rows remain.
  void Compact();

  // Reads and checks every record and returns the damaged places.
  std::vector<Corruption> Verify();

  // Verifies the files at `path`, even if they are too damaged to open a tier. Throws IoError. The
  // errno of the IoError is EBUSY if a tier in this directory is open for writing.
  static std::vector<Corruption> VerifyFiles(const std::string& path, Env* env = Env::Posix());

  // Flushes and closes the tier. After Close, methods that read or change rows throw IoError. The
  // tier is closed even if Close throws.
  void Close();

  // Statistics of one segment: records, live rows, tombstone records, bytes of the file.
  struct SegmentInfo {
    std::string name;
    uint64_t slots, live, tombstone_slots, bytes;
    bool sealed;
  };
  std::vector<SegmentInfo> Segments() const;

  const std::string& path() const { return options_.path; }
  const char* io_name() const { return reader_.name(); }
  // The error that stopped garbage collection; empty if garbage collection works.
  std::string gc_error() const;

 private:
  friend class SsdScan;
  // Segments, indexed by ordinal; null for unused ordinals. The segment table is replaced as a
  // whole, so a reader can continue to use an old table.
  using SegmentTable = std::vector<std::shared_ptr<Segment>>;
  struct Request {
    uint64_t position;
    size_t i;
  };
  // Numbers of segments that a write, an erasure and a collection must leave free within max_bytes.
  // A collection needs less than one free segment. When rows can no longer be written, erasing must
  // still be possible.
  static constexpr uint64_t kSpareForWrite = 2;
  static constexpr uint64_t kSpareForErase = 1;
  static constexpr uint64_t kSpareForCollect = 0;

  // ssd_recovery.cc
  struct Opening {
    SsdOptions options;
    std::unique_ptr<FileLock> lock;  // the rest was read under it
    bool there = false;
    Manifest manifest;
    std::vector<std::shared_ptr<Segment>> segments;  // the manifest's, with good headers
  };
  static SsdOptions Checked(SsdOptions options);
  static SsdOptions Sized(SsdOptions options);
  static Opening Open(const SsdOptions& options, Env* env);
  static int SlotBits(const Opening& opening);
  SsdTier(Opening opening, Env* env);
  void Recover(const Opening& opening);
  void Replay(size_t ordinal, const SegmentKeys& keys);
  void RemoveLeftovers();

  // ssd_tier.cc
  void CheckOpen() const;  // under any lock
  void CheckWritable() const;
  uint64_t PositionOf(size_t ordinal, uint64_t slot) const {
    return uint64_t{ordinal} << slot_bits_ | slot;
  }
  size_t OrdinalOf(uint64_t position) const { return position >> slot_bits_; }
  uint64_t SlotOf(uint64_t position) const { return position & ((uint64_t{1} << slot_bits_) - 1); }
  Segment& SegmentOf(uint64_t position) const { return *(*segments_)[OrdinalOf(position)]; }
  std::vector<Extent> Plan(std::vector<Request>* requests, const SegmentTable& segments) const;
  // Requires write_mutex_. Makes sure that the segment head_ has room. Returns false if max_bytes
  // does not leave space for head_ and `spare` further segments.
  bool MakeRoom(uint64_t spare);
  bool HasSpace(uint64_t spare) const;  // under write_mutex_ or state_mutex_
  void SealHead();
  void AddHead();
  void StoreManifest(const SegmentTable& segments);
  void FlushLocked();
  // AppendRows and AppendTombstones append as many records as fit, and return the number of
  // appended records. AppendRows and AppendTombstones require that write_mutex_ is locked and that
  // there is room for a record.
  size_t AppendRows(const int64_t* keys, size_t n, const char* rows, uint64_t* counter);
  size_t AppendTombstones(const Tombstone* tombstones, size_t n, uint64_t* counter);
  size_t AddSegment(std::shared_ptr<Segment> segment);  // under both
  void Count(const Segment& segment, size_t ordinal);   // before it gets there; throws EFBIG

  // ssd_gc.cc
  void CollectorMain();
  // PickVictim, ShouldCollect and FarBehind require state_mutex_.
  std::shared_ptr<Segment> PickVictim(bool urgent) const;
  bool ShouldCollect() const;
  bool FarBehind() const;
  bool Paused() const {  // for exact scans
    return exact_scans_ > 0 && space_waiters_ == 0 && throttled_writers_ == 0;
  }
  void WaitForCollector();  // writers, holding nothing
  void WaitForSpace();
  // If `background` is true, Collect does not run while garbage collection is paused.
  void Collect(const std::shared_ptr<Segment>& victim, bool background);
  void CollectRows(const Segment& victim, size_t ordinal, const SegmentKeys& keys);
  void CollectTombstones(const Segment& victim, const SegmentKeys& keys);
  void RemoveSegment(const std::shared_ptr<Segment>& victim);

  const SsdOptions options_;
  Env* const env_;
  std::unique_ptr<FileLock> lock_;
  const RecordShape shape_;
  const uint64_t slots_per_segment_;
  const int slot_bits_;
  BatchReader reader_;

  // The mutexes are locked in this order: collect, write, state. Garbage collection keeps `collect`
  // locked, and a writer keeps `write` locked, so at most one collection and one writer run at a
  // time. The index changes only while `write` and `state` are both locked, so either lock is
  // enough to read the index. The mutex `state` guards index_ and the members declared after
  // index_. `state` is never locked during a file access.
  std::mutex collect_mutex_;
  std::mutex write_mutex_;
  mutable std::mutex state_mutex_;

  KeyPositions index_;
  std::shared_ptr<const SegmentTable> segments_;
  std::unique_ptr<SegmentWriter> head_;  // replaced under write and state
  size_t head_ordinal_ = 0;
  uint64_t next_id_ = 1;         // under write, as the next
  bool manifest_stale_ = false;  // a segment was sealed since it was stored
  uint64_t disk_bytes_ = 0;      // of segments
  uint64_t used_slots_ = 0;
  uint64_t segment_count_ = 0;
  TierStats stats_;  // the counters in it
  bool closed_ = false;
  bool stop_ = false;
  bool collecting_ = false;
  int space_waiters_ = 0;
  int throttled_writers_ = 0;
  int exact_scans_ = 0;
  bool gc_failed_ = false;  // the last collection, for a reason that may pass
  std::string gc_error_;
  std::condition_variable wake_collector_;
  std::condition_variable collected_;
  std::thread collector_;
};

}  // namespace msrec
