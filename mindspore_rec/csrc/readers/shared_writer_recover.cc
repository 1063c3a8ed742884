// SPDX-License-Identifier: Apache-2.0
//
// SharedWriter: starts from memory that an earlier writer has filled.
#include <string>

#include "readers/shared_writer_parts.h"

namespace msrec {

using namespace shared_index;  // NOLINT: functions on the same memory

// Mark all ranges that a root reaches, except rows, as allocated. A range larger than the file's
// memory was never written. A range that was never written is not read, because the read would
// allocate memory.
void SharedWriter::TakeRoot(const SharedRoot& root) {
  arena_.Take(memory_->control().roots[root.sequence % kSharedRoots].load(),
              SharedRoot::Bytes(root.tables));
  arena_.Take(root.blob.offset, root.blob.bytes);
  arena_.Take(root.status.offset, root.status.bytes);
  const uint64_t held = memory_->BytesHeld();
  const auto require = [](bool fine, const char* what) {
    if (!fine) throw SharedDamaged(std::string("the shared memory is damaged: ") + what);
  };
  for (size_t t = 0; t < memory_->tables(); ++t) {
    const SharedTableRoot& table = root.table()[t];
    if (table.overlay_entries != 0) {
      const uint64_t entries = table.overlay_entries;
      arena_.Take(table.overlay, entries * sizeof(SharedChange));
      require(entries <= held / sizeof(SharedChange), "an overlay is larger than the memory");
      const auto* overlay = memory_->At<SharedChange>(table.overlay);
      bool free = false;
      for (uint64_t i = 0; i < entries; ++i) {
        free = free || overlay[i].kind == kNoChange;
        require(overlay[i].kind <= kGone, "a change is of no kind");
        require(overlay[i].kind != kNewRow || overlay[i].slot < table.end,
                "a changed row lies outside its table");
      }
      require(free, "an overlay is full");
    }
    for (int p = 0; p < kSharedParts; ++p) {
      const SharedIndexPart& part = table.parts[p];
      if (part.buckets == 0) continue;
      arena_.Take(part.offset, part.buckets * sizeof(SharedBucket));
      require(part.buckets <= held / sizeof(SharedBucket), "an index is larger than the memory");
      tables_[t]->rows[p] = 0;
      ForEach(memory_->At<SharedBucket>(part.offset), part.buckets, [&](uint32_t slot) {
        require(slot < table.end, "a row lies outside its table");
        ++tables_[t]->rows[p];
      });
    }
  }
}

void SharedWriter::Recover() {
  if (!published()) {
    arena_.ReleaseFree();
    for (const auto& table : tables_) table->slots.ReleaseFree();
    return;
  }
  memory_->CheckRoot(memory_->control().roots[sequence() % kSharedRoots].load());
  if (Root()->sequence != sequence()) {
    throw SharedDamaged("the shared memory is damaged: the newest root is another one");
  }
  // After a restart, this writer has no record of the older roots. When no reader uses an older
  // root any more, all memory that the newest root does not reach is free.
  WaitForReaders();
  TakeRoot(*Root());
  bool overlays = false;
  for (size_t t = 0; t < memory_->tables(); ++t) {
    overlays = overlays || Root()->table()[t].overlay_entries != 0;
  }
  if (overlays) {
    Merge();
    WaitForReaders();
    // Do not free the slots of replaced rows: the code below marks only slots in the index as used,
    // so all other slots are free anyway.
    for (Retired& each : retired_) each.slots.clear();
    FreeRetired();
  }
  for (size_t t = 0; t < memory_->tables(); ++t) {
    SharedSlots& slots = tables_[t]->slots;
    const size_t stride = memory_->stride(t);
    for (int p = 0; p < kSharedParts; ++p) {
      const SharedIndexPart& part = Root()->table()[t].parts[p];
      ForEach(memory_->At<SharedBucket>(part.offset), part.buckets, [&](uint32_t slot) {
        slots.Take(slot);
        const auto key = KeyOfQuantised(memory_->Row(memory_->spec(t), stride, slot));
        if (PartOf(hasher_.Hash(static_cast<uint64_t>(key))) != p) {
          throw SharedDamaged("the shared memory is damaged: a row is of another key");
        }
      });
    }
    slots.ReleaseFree();
  }
  arena_.ReleaseFree();
}

}  // namespace msrec
