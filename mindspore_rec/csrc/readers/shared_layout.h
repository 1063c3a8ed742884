// SPDX-License-Identifier: Apache-2.0
//
// Layout of shared memory: one process writes rows into the memory, and other processes answer
// lookups from this memory. All positions are stored as offsets from the start of the memory,
// because the memory's address differs between processes.
//
//   | Control | arena: indexes, overlays, roots, blobs | rows of table 0 | rows of table 1 | ...
//
// The file is sparse. Address space is reserved for the largest possible size of each part, but
// only used pages take memory. A reader finds all its data from one root, and a root describes one
// state of all tables:
//
//   Control.roots[sequence] -> Root -> blob (Python's part of the state), status
//                                   -> TableRoot -> overlay: keys that a delta changed
//                                                -> IndexPart -> buckets: key -> slot of a row
//
// A root never changes after it is published. Readers search the overlay first, so the writer may
// change a bucket's entry while the overlay contains the entry's key. A row that a reader can reach
// never changes. shared_writer.h describes the steps of a change.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace msrec {

constexpr uint64_t kSharedMagic = 0x31726873636572ull;  // "recshr1"
constexpr size_t kSharedPage = 4096;
constexpr int kSharedParts = 64;     // parts of a table's index; each part grows independently
constexpr int kSharedReaders = 512;  // maximum number of concurrent lookups in all processes
constexpr int kSharedTables = 1024;
constexpr int kSharedRoots = 8;

// Settings of a table; the settings never change.
struct SharedTableSpec {
  int32_t dim;
  int32_t bits;  // bits of a number: 32, 8 or 4
  int64_t vocabulary;
  int64_t max_idle_steps;  // -1: off
  int64_t max_idle_seconds;
  uint64_t rows_offset;
  uint64_t rows_bytes;  // size of the rows' address space
  uint32_t outside_zeros;
  uint32_t unused;

  bool aged() const { return max_idle_steps >= 0 || max_idle_seconds >= 0; }
};

// The place of one reader; each place occupies a separate cache line.
struct alignas(64) SharedReaderSlot {
  std::atomic<uint64_t> sequence;  // of the root that is read; 0: none is
};

struct SharedControl {
  std::atomic<uint64_t> magic;  // written last
  uint64_t bytes;
  uint64_t arena_offset;
  uint64_t arena_bytes;
  uint64_t hash_seed;
  uint64_t tables;
  std::atomic<uint64_t> following;            // whether a process follows the training run
  std::atomic<uint64_t> sequence;             // of the newest root; 0: there is none yet
  std::atomic<uint64_t> roots[kSharedRoots];  // the offset of root s is element s % kSharedRoots
  SharedReaderSlot readers[kSharedReaders];
  SharedTableSpec specs[kSharedTables];
};

constexpr size_t kSharedControlBytes =
    (sizeof(SharedControl) + kSharedPage - 1) / kSharedPage * kSharedPage;

constexpr int kBucketEntries = 12;

// One cache line. An entry consists of one byte of the key's hash (0 for an empty entry) and the
// slot of the key's row. The key is stored in the row, not in the entry.
struct alignas(64) SharedBucket {
  std::atomic<uint64_t> tags[2];  // tags of entries 0 to 7, and of entries 8 to 11 with the bit
                                  // kPast
  std::atomic<uint32_t> slots[kBucketEntries];
};
static_assert(sizeof(SharedBucket) == 64, "a bucket is one line");

struct SharedIndexPart {
  uint64_t offset = 0;
  uint64_t buckets = 0;
};

// An overlay's entry for a key that a delta has changed. An entry never changes after it is
// published.
struct SharedChange {
  int64_t key;
  uint32_t slot;
  uint32_t kind;
};
enum SharedChangeKind : uint32_t { kNoChange = 0, kNewRow, kGone };

struct SharedTableRoot {
  uint64_t rows = 0;  // number of rows
  uint64_t end = 0;   // all slots in use are below `end`
  int64_t ages_at_step = 0;
  int64_t ages_at_time = 0;
  uint64_t first_time = 0;       // time of the rows whose stored time is 0
  uint64_t overlay = 0;          // offset
  uint64_t overlay_entries = 0;  // a power of two, or 0 if nothing was changed
  SharedIndexPart parts[kSharedParts];
};

struct SharedBlob {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct SharedRoot {
  uint64_t magic = kSharedMagic;
  uint64_t sequence = 0;
  uint64_t state = 0;  // sequence number of the first root with this blob
  SharedBlob blob, status;
  uint64_t tables = 0;

  // The tables' roots directly follow this struct.
  SharedTableRoot* table() { return reinterpret_cast<SharedTableRoot*>(this + 1); }
  const SharedTableRoot* table() const {
    return reinterpret_cast<const SharedTableRoot*>(this + 1);
  }
  static size_t Bytes(uint64_t tables) {
    return sizeof(SharedRoot) + tables * sizeof(SharedTableRoot);
  }
};

}  // namespace msrec
