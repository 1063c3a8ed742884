// SPDX-License-Identifier: Apache-2.0
//
// Segment: one file of the log, open for reading, and the counts of its records. Only a
// SegmentWriter adds records, and only to the last segment. Each reader has a shared_ptr to the
// Segment, so the file may be removed while it is being read.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tier/env.h"
#include "tier/format.h"

namespace msrec {

// The keys of a segment's records, in the format of the footer.
struct SegmentKeys {
  std::vector<int64_t> keys;              // by record; of a tombstone record nothing useful
  std::vector<uint32_t> tombstone_slots;  // ascending
  std::vector<std::vector<Tombstone>> tombstones;  // of each of those
  bool rebuilt = false;                            // the footer was damaged, the records were read
};

class Segment {
 public:
  // Checks the file's header. Requires: the file exists and has a header. Throws Corruption or
  // IoError.
  Segment(std::unique_ptr<File> file, uint64_t id, const RecordShape& shape);

  // Writes and syncs the header of a new segment with room for `slots` records.
  static std::unique_ptr<File> Create(Env* env, const std::string& path, bool direct, uint64_t id,
                                      const RecordShape& shape, uint64_t slots, uint64_t bytes);

  // Maximum number of records in the file at its current size.
  uint64_t MostSlots() const { return shape_.MostIn(file_->Size()); }

  // Calls fn(slot, record) for the records from `first` to `slots` - 1, until fn returns false or
  // the file ends. Records are not checked. `slots` may be larger than the number of records in the
  // file.
  void Scan(uint64_t first, uint64_t slots,
            const std::function<bool(uint64_t slot, const char* record)>& fn) const;

  // Returns the keys of the first `slots` records of a sealed segment. If the footer is damaged or
  // inconsistent, LoadKeys reads the keys from the records. LoadKeys throws Corruption if a
  // tombstone record is damaged. When LoadKeys reads the keys from the records, LoadKeys throws
  // Corruption if a record is damaged, or if the number of records is not `slots`.
  SegmentKeys LoadKeys(uint64_t slots) const;

  // Reads the keys from the records, and returns them. Stops at the first invalid record whose
  // index is at least `synced`. Throws Corruption if a record before `synced` is invalid.
  SegmentKeys ScanKeys(uint64_t synced, uint64_t slots) const;

  // Returns the number of synced records of an unsealed segment.
  SyncMark LoadMark() const;

  // Appends footer and trailer after the last record, and truncates the file at the trailer's end.
  // `keys` are the keys of the records. The caller syncs the file. Repeated calls are allowed.
  void WriteFooter(const std::vector<int64_t>& keys, const std::vector<uint32_t>& tombstone_slots);

  // Checks header, footer and all records, and adds the errors to `problems`. If many records are
  // damaged, Verify adds the first thousand errors and the total number of damaged records.
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
  // Does the same as Damage() for a record whose key is known from the index; the message contains
  // the key.
  Corruption DamageOf(int64_t key, uint64_t slot) const {
    return Corruption("record " + std::to_string(slot) + ", the row of key " + std::to_string(key) +
                          ", does not match its checksum",
                      file_->path(), OffsetOf(slot));
  }

  // Counts of the segment's records and bytes; the tier's lock protects the counts.
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
