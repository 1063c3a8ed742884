// SPDX-License-Identifier: Apache-2.0
//
// Internal state of SharedWriter (shared_writer.h): tables and changes. Only these files include
// this header:
//
//   shared_writer.cc          the newest root, and the publication of the next root
//   shared_writer_rows.cc     rows of a change before its publication
//   shared_writer_settle.cc   merges overlays into the index, and frees memory without readers
//   shared_writer_recover.cc  recovery from the memory that another writer left
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "readers/shared_change.h"
#include "readers/shared_slots.h"
#include "readers/shared_writer.h"

namespace msrec {

// Slots, index parts and memory ranges that only older roots reach.
struct SharedWriter::Retired {
  size_t table = 0;
  std::vector<uint32_t> slots;
  std::vector<SharedIndexPart> whole;  // parts whose rows are all freed, too
  std::vector<SharedBlob> ranges;
};

struct SharedWriter::Merged {
  Retired gone;
  std::vector<SharedIndexPart> new_parts;
  std::vector<SharedBlob> old_parts;
};

struct SharedWriter::Table {
  Table(const SharedMemory* memory, size_t number) : slots(memory, number) {}
  SharedSlots slots;
  std::array<uint64_t, kSharedParts> rows = {};  // rows of each part of the newest root's index
};

struct SharedWriter::Change : SharedTableChange {};

// View is inline, because View is called for each row of a change.
inline SharedPartView SharedWriter::View(size_t table, const SharedIndexPart& part,
                                         uint64_t end) const {
  const SharedTableSpec& spec = memory_->spec(table);
  return {memory_->At<SharedBucket>(part.offset), part.buckets, memory_->At<char>(spec.rows_offset),
          memory_->stride(table), end};
}

}  // namespace msrec
