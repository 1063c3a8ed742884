// SPDX-License-Identifier: Apache-2.0
//
// RowHandles: names rows by handles that cannot be mistaken for others. A handle is two int64:
//   [0] tag, its upper 24 bits << 36 | shard << 32 | place of the row in the shard; or -1: a key
//       without a row, its gradient is dropped
//   [1] the table's number, 23 bits << 40 | tag, its lower 40 bits
// Of a table over workers the upper 12 of the tag's upper 24 bits give way to the number of the
// worker that has the row; a worker that gets another one's handle writes its own table's number
// into it. The tag is a hash, under a key that only the table has, of the row's key and place and
// of the structure version in which the handle was given: no other handle passes for one that was
// given. The version changes whenever a row leaves the table or rows are laid out anew, so a handle
// that passes names the row it was given for. A part of a table, under its mutex.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rows/batch.h"
#include "table/core/table_core.h"
#include "util/siphash.h"

namespace msrec {

class RowHandles {
 public:
  // Requires: core outlives it.
  explicit RowHandles(const TableCore* core) : core_(*core) {}

  // The tags of one version, put together with what they are of.
  class Tags {
   public:
    Tags(const SipHash& key, uint64_t version, int64_t table, const Placement& placement);
    // Whether a handle is of this table.
    bool OfTable(const int64_t* handle) const;
    // Fill the handle of the row of that key in that place, or that of a key without a row.
    void Give(uint64_t place, int64_t key, int64_t* handle) const;
    void GiveNoRow(int64_t* handle) const;

   private:
    uint64_t Of(uint64_t place, int64_t key) const;

    SipHash keyed_;
    const uint64_t number_;
    const Placement placement_;
    int64_t no_row_;
  };

  // Whether a handle is that of a key without a row.
  static bool NoRow(const int64_t* handle) { return handle[0] == -1; }
  // Return the worker that has the row of a handle of a table over workers.
  static uint32_t WorkerOf(const int64_t* handle);
  // Make another worker's handle one of this worker's table, or of the key without a row it names.
  void Adopt(const Tags& tags, int64_t* handle) const;
  // Throw StaleHandle where handles[i] is of another table.
  void RequireOfTable(const Tags& tags, const int64_t* handles, size_t i) const;

  // Return the tags of the present version.
  Tags Now() const;
  // Make room so that Give cannot fail. Throws std::bad_alloc.
  static void Reserve(Batch* batch) { batch->handles.Reset(2 * batch->n); }
  // Fill handles [batch.n, 2] for the ids of a batch whose rows were found. If it is not
  // `trained`, all are handles of keys without a row. Requires Reserve.
  void Give(Batch* batch, bool trained, int64_t* handles) const;
  // Return the row of handles[i], or null for a key without one. Throws StaleHandle where the
  // handle is another table's, was made up, or its row is no longer there.
  const char* Row(const Tags& tags, const int64_t* handles, size_t i) const;

 private:
  const TableCore& core_;
  const SipHash key_ = SipHash::WithRandomKey();
};

}  // namespace msrec
