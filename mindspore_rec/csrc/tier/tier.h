// SPDX-License-Identifier: Apache-2.0
//
// Tier: storage below host memory. A Tier stores rows of one fixed size by key; a key is any int64.
// A row is one block of bytes, in which the caller stores value, optimizer state and metadata.
//
// Any thread may call any method at any time. Concurrent writes of one key take effect one after
// another, in any order. For each key, Read returns the row that the key had at some moment during
// the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "util/units.h"

namespace msrec {

struct TierStats {
  uint64_t rows = 0;
  uint64_t live_bytes = 0;     // rows * row_bytes
  uint64_t disk_bytes = 0;     // size of all segment files, including reserved space
  uint64_t index_bytes = 0;    // memory for finding rows
  uint64_t buffer_bytes = 0;   // other memory: rows not written yet, buffers for reading
  uint64_t read_bytes = 0;     // read by Read and Scan since the tier was opened
  uint64_t written_bytes = 0;  // appended by Write and Erase
  uint64_t gc_bytes = 0;       // appended by garbage collection
  uint64_t gc_segments = 0;    // collected
  uint64_t segments = 0;
  uint64_t tombstone_records = 0;
  uint64_t rebuilt_footers = 0;   // damaged footers whose keys were read from the records instead
  uint64_t damaged_segments = 0;  // segments that garbage collection skips because they are damaged
  Seconds throttled{0};           // time for which writers waited for garbage collection
};

// A walk over all rows of a tier, one part at a time. Only one thread may use a scan. The scan must
// be destroyed before the tier.
class TierScan {
 public:
  virtual ~TierScan() = default;

  // Replaces the contents of `keys` and `rows` (n * row_bytes bytes) by the next rows. Next returns
  // at least one and at most max(1, most) rows. Usually, Next returns at least about `most` / 2
  // rows. Next may return fewer rows than `most` / 2 at the end of the walk, at the end of a level
  // of a TierChain, and before an error. After the last row was returned, every call of Next
  // returns false and no rows. Throws IoError or Corruption. If Next throws, the contents of `keys`
  // and `rows` are undefined, and the next call reads the same rows again. If the tier is closed,
  // every call throws.
  virtual bool Next(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows) = 0;
};

class Tier {
 public:
  virtual ~Tier() = default;

  // For each i, copies the row of keys[i] to rows + i * row_bytes and sets found[i]. If keys[i] has
  // no row, found[i] is false, and nothing is copied. Throws IoError or Corruption; after an
  // exception, the contents of `rows` and `found` are undefined.
  virtual void Read(const int64_t* keys, size_t n, char* rows, bool* found) = 0;

  // Inserts or replaces rows. If a key occurs several times, the last row is written. If Write
  // throws (IoError: disk full, max_bytes, ...), each key has either its old or its new row, and
  // the call may be repeated.
  virtual void Write(const int64_t* keys, size_t n, const char* rows) = 0;

  // Erases the rows of keys; absent keys are ignored. Throws the same exceptions as Write.
  virtual void Erase(const int64_t* keys, size_t n) = 0;

  // Makes all earlier writes and erasures survive kill -9 and power loss.
  virtual void Flush() = 0;

  virtual size_t size() const = 0;
  virtual size_t row_bytes() const = 0;

  // Returns all keys that are in the tier at one moment, in no fixed order.
  virtual std::vector<int64_t> Keys() const = 0;

  // Starts a walk over the rows. If a row exists during the whole walk and is not written, the walk
  // returns it at least once. If a row is written or erased during the walk, the row may be
  // returned twice or not at all. If garbage collection or a spill moves a row, the row may be
  // returned twice. A returned row has contents that the row had at some moment of the walk. The
  // walk ends even if rows are written all the time.
  //
  // If `exact` is true, each row is returned exactly once, provided that no thread writes, erases,
  // clears or compacts during the scan's lifetime. Garbage collection waits for the end of an exact
  // scan. Garbage collection continues during an exact scan only if a writer is out of space, or is
  // far ahead of the collection. If garbage collection moves a row during an exact scan, the scan
  // may return the row twice.
  virtual std::unique_ptr<TierScan> Scan(bool exact) = 0;

  // Sets found[i] to true if there is a row of keys[i], without reading the row.
  virtual void Contains(const int64_t* keys, size_t n, bool* found) const = 0;

  // Erases every row quickly. After Clear, the rows stay erased even after kill -9 or power loss.
  // If Clear throws, or if kill -9 or power loss interrupts the call, either all rows or no rows
  // remain. A TierChain clears each level separately, so an interrupted Clear may leave one level
  // empty and another level full.
  virtual void Clear() = 0;

  virtual TierStats Stats() const = 0;
};

}  // namespace msrec
