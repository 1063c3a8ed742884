// SPDX-License-Identifier: Apache-2.0
//
// RowHandles: identifies rows by handles that cannot be forged and never identify a wrong row. A
// handle is two int64:
//
//   [0] tag, its upper 24 bits << 36 | shard << 32 | place of the row in the shard; or -1: a key
//       without a row, its gradient is dropped
//   [1] the table's number, 23 bits << 40 | tag, its lower 40 bits
//
// In a table over workers, a handle contains the index of the worker that has the row. The worker's
// index replaces the highest 12 bits of the tag. A worker that receives a handle from another
// worker replaces the table id in the handle by the id of the receiving worker's table. The tag is
// a hash with a secret key of the table. The hash covers the row's key, the row's place, and the
// structure version at the handle's creation. In a table with lower tiers, the hash also covers the
// number of the current step. Because of the hash, only handles that the table has created are
// accepted. The version changes when a row leaves the table and when rows get another layout, so an
// accepted handle always belongs to its original row. RowHandles is a part of a table; the caller
// must hold the table's mutex.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rows/batch.h"
#include "table/core/table_core.h"
#include "util/siphash.h"

namespace msrec {

class RowHandles {
 public:
  // Requires: core outlives this object.
  explicit RowHandles(const TableCore* core) : core_(*core) {}

  // Computes the tags of handles that are created at one structure version.
  class Tags {
   public:
    Tags(const SipHash& key, uint64_t version, int64_t table, const Placement& placement);
    // True if the handle belongs to this table.
    bool OfTable(const int64_t* handle) const;
    // Give computes the handle of a row from the row's place and key. GiveNoRow computes the handle
    // of a key without a row.
    void Give(uint64_t place, int64_t key, int64_t* handle) const;
    void GiveNoRow(int64_t* handle) const;

   private:
    uint64_t Of(uint64_t place, int64_t key) const;

    SipHash keyed_;
    const uint64_t number_;
    const Placement placement_;
    int64_t no_row_;
  };

  // True if the handle belongs to a key without a row.
  static bool NoRow(const int64_t* handle) { return handle[0] == -1; }
  // Return the worker that has the row of a handle. The table must be a table over several workers.
  static uint32_t WorkerOf(const int64_t* handle);
  // Turn another worker's handle into a handle of this worker's table. If the handle belongs to a
  // key without a row, the new handle also belongs to a key without a row.
  void Adopt(const Tags& tags, int64_t* handle) const;
  // Throw StaleHandle if handles[i] belongs to another table.
  void RequireOfTable(const Tags& tags, const int64_t* handles, size_t i) const;

  // Return a Tags object for the current structure version.
  Tags Now() const;
  // Reserve memory, so that Give cannot fail. Throws std::bad_alloc.
  static void Reserve(Batch* batch) { batch->handles.Reset(2 * batch->n); }
  // Fill handles [batch.n, 2] for the ids of a batch. Requires that batch->row is filled. If
  // `trained` is false, every handle is a handle of a key without a row. Requires Reserve.
  void Give(Batch* batch, bool trained, int64_t* handles) const;
  // Return the row of handles[i], or null for a key without a row. Throws StaleHandle if the handle
  // is from another table or is forged, if the row is due for eviction, or if any row has left the
  // table since the handle was created.
  const char* Row(const Tags& tags, const int64_t* handles, size_t i) const;

 private:
  const TableCore& core_;
  const SipHash key_ = SipHash::WithRandomKey();
};

}  // namespace msrec
