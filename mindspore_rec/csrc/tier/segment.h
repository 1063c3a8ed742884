// SPDX-License-Identifier: Apache-2.0
//
// Segment: one file of the log, for reading, and what is counted about it. Its records are only
// ever added, by a SegmentWriter while it is the last; readers hold a shared_ptr, so the file may
// be removed below them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tier/env.h"
#include "tier/format.h"

namespace msrec {

// The keys of a segment's records, as its footer lists them.
struct SegmentKeys {
  std::vector<int64_t> keys;              // by record; of a tombstone record nothing useful
  std::vector<uint32_t> tombstone_slots;  // ascending
  std::vector<std::vector<Tombstone>> tombstones;  // of each of those
  bool rebuilt = false;                            // the footer was damaged, the records were read
};

class Segment {
 public:
  // Requires: the file exists and holds a header, which is checked. Throws Corruption, IoError.
  Segment(std::unique_ptr<File> file, uint64_t id, const RecordShape& shape);

  // Writes the header of a new segment with room for `slots` and syncs it.
  static std::unique_ptr<File> Create(Env* env, const std::string& path, bool direct, uint64_t id,
                                      const RecordShape& shape, uint64_t slots, uint64_t bytes);

  // Records that lie in the file as it is now.
  uint64_t MostSlots() const { return shape_.MostIn(file_->Size()); }

  // fn(slot, record) for each record from first on, until fn returns false or the file ends;
  // records are not checked. No value of `slots` is too large.
  void Scan(uint64_t first, uint64_t slots,
            const std::function<bool(uint64_t slot, const char* record)>& fn) const;

  // The keys of the first `slots` records of a sealed segment. A footer that is damaged, or says
  // what cannot be, is made good from the records; throws Corruption when one of those is damaged
  // too, or the file has more or less of them.
  SegmentKeys LoadKeys(uint64_t slots) const;

  // The same from the records. Stops at the first invalid record at or after `synced`; throws
  // Corruption when one before is invalid.
  SegmentKeys ScanKeys(uint64_t synced, uint64_t slots) const;

  // The first `slots` records that were promised to be there, of a segment not sealed.
  SyncMark LoadMark() const;

  // Writes footer and trailer behind the records with these keys, and cuts the file off there. The
  // caller syncs. May be repeated.
  void WriteFooter(const std::vector<int64_t>& keys, const std::vector<uint32_t>& tombstone_slots);

  // Checks header, footer and all records; adds what is wrong to `problems`: of many damaged
  // records the first thousand and how many there are.
  void Verify(uint64_t slots, bool sealed, std::vector<Corruption>* problems) const;

  const File& file() const { return *file_; }
  File* mutable_file() { return file_.get(); }
  const RecordShape& shape() const { return shape_; }
  uint64_t id() const { return id_; }
  uint64_t capacity() const { return capacity_; }  // records it had room for
  uint64_t OffsetOf(uint64_t slot) const { return shape_.OffsetOf(slot); }
  bool Valid(uint64_t slot, const char* record) const { return shape_.Valid(id_, slot, record); }
  Corruption Damage(uint64_t slot) const {
    return Corruption("record " + std::to_string(slot) + " does not match its checksum",
                      file_->path(), OffsetOf(slot));
  }
  // The same, where the index says whose row it is.
  Corruption DamageOf(int64_t key, uint64_t slot) const {
    return Corruption("record " + std::to_string(slot) + ", the row of key " + std::to_string(key) +
                          ", does not match its checksum",
                      file_->path(), OffsetOf(slot));
  }

  // Counts; guarded by the tier's lock.
  uint64_t slots = 0;            // records that count
  uint64_t live = 0;             // rows the index points to
  uint64_t tombstone_slots = 0;  // tombstone records
  uint64_t bytes = 0;            // of the file
  bool sealed = false;
  bool damaged = false;  // garbage collection leaves it alone

  uint64_t dead() const { return slots - live - tombstone_slots; }

 private:
  bool LoadFooter(uint64_t slots, SegmentKeys* out, uint64_t* bad_offset) const;
  bool LoadTombstones(SegmentKeys* out) const;

  std::unique_ptr<File> file_;
  const uint64_t id_;
  const RecordShape shape_;
  uint64_t capacity_;
};

}  // namespace msrec
