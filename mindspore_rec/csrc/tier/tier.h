// SPDX-License-Identifier: Apache-2.0
//
// Tier: storage below host memory for rows of one fixed size, by key (any int64). The caller
// decides what a row holds: value, optimizer state and metadata move as one block of bytes.
//
// Any thread may call any member at any time. Concurrent writes of one key end in some order; a
// Read sees, for each key, a row that was the key's at some moment between its start and its end.
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
  uint64_t disk_bytes = 0;     // of all files, space set aside included
  uint64_t index_bytes = 0;    // memory for finding rows
  uint64_t buffer_bytes = 0;   // other memory: rows not written yet, buffers for reading
  uint64_t read_bytes = 0;     // read for Read and Scan, since the tier was opened
  uint64_t written_bytes = 0;  // appended by Write and Erase
  uint64_t gc_bytes = 0;       // appended by garbage collection
  uint64_t gc_segments = 0;    // collected
  uint64_t segments = 0;
  uint64_t tombstone_records = 0;
  uint64_t rebuilt_footers = 0;   // damaged ones whose keys were read from the records instead
  uint64_t damaged_segments = 0;  // that garbage collection leaves alone
  Seconds throttled{0};           // writers waited for garbage collection
};

// A walk over all rows of a tier, a part at a time. For one thread; destroyed before the tier is.
class TierScan {
 public:
  virtual ~TierScan() = default;

  // Replaces keys and rows (n * row_bytes) by the next ones: at least one, at most max(1, most)
  // and, but for the end, about half as many; false and nothing at the end, and from then on.
  // Throws IoError or Corruption, where keys and rows are undefined; calling again tries the same
  // part again. Of a closed tier every call throws.
  virtual bool Next(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows) = 0;
};

class Tier {
 public:
  virtual ~Tier() = default;

  // For each i copies the row of keys[i] to rows + i * row_bytes and sets found[i]; where there is
  // none, found[i] is false and the row's bytes are left alone. Throws IoError or Corruption; the
  // contents of rows and found are then undefined.
  virtual void Read(const int64_t* keys, size_t n, char* rows, bool* found) = 0;

  // Inserts or replaces rows; of equal keys the last one counts. When it throws (IoError: disk
  // full, max_bytes, ...), each row is as it was or as given here, and the call may be repeated.
  virtual void Write(const int64_t* keys, size_t n, const char* rows) = 0;

  // Erases the rows of keys; absent keys are ignored. Throws as Write does.
  virtual void Erase(const int64_t* keys, size_t n) = 0;

  // Makes all earlier writes and erasures survive kill -9 and power loss.
  virtual void Flush() = 0;

  virtual size_t size() const = 0;
  virtual size_t row_bytes() const = 0;

  // Returns all keys at one moment, in no order.
  virtual std::vector<int64_t> Keys() const = 0;

  // Starts a walk over the rows. Each row that exists during the whole walk is given at least once,
  // as it was at some moment of it; a row that is written, erased or moved meanwhile may be given
  // again or not at all. The walk ends, however much is written meanwhile.
  //
  // exact: where nobody writes, erases, clears or compacts until the scan is destroyed, each row is
  // given exactly once. For that garbage collection waits; only a writer that must have it (out of
  // space, or far ahead of it) lets it go on, and then a row it moves may be given twice.
  virtual std::unique_ptr<TierScan> Scan(bool exact) = 0;

  // Sets found[i] to whether there is a row of keys[i], without reading it.
  virtual void Contains(const int64_t* keys, size_t n, bool* found) const = 0;

  // Erases every row, fast, and as durably as Flush. When it throws, all rows are there, or none;
  // after kill -9 or power loss in the middle of it too.
  virtual void Clear() = 0;

  virtual TierStats Stats() const = 0;
};

}  // namespace msrec
