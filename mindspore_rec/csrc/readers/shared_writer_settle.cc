// SPDX-License-Identifier: Apache-2.0
//
// SharedWriter: the work that follows the publication of a change. Merges overlays into the index,
// and frees memory that only older roots reach.
#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "readers/shared_writer_parts.h"

namespace msrec {

using namespace shared_index;  // NOLINT: functions on the same memory

SharedReaderStuck::SharedReaderStuck(int number, double seconds)
    : std::runtime_error("reader " + std::to_string(number) +
                         " of the shared rows has been at one "
                         "answer for " +
                         std::to_string(static_cast<int64_t>(seconds)) + " s"),
      reader(number) {}

// Wait until no reader uses a root older than the newest root.
void SharedWriter::WaitForReaders() {
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t newest = sequence();
  std::chrono::microseconds pause(20);
  for (int i = 0; i < kSharedReaders;) {
    const uint64_t read = memory_->control().readers[i].sequence.load();
    if (read == 0 || read >= newest) {
      ++i;
      continue;
    }
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (waited.count() > patience_) throw SharedReaderStuck(i, waited.count());
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
}

void SharedWriter::Settle() {
  if (!published()) return;
  const SharedRoot* root = Root();
  bool overlays = false;
  for (size_t t = 0; t < memory_->tables(); ++t) {
    overlays = overlays || root->table()[t].overlay_entries != 0;
  }
  if (!overlays && retired_.empty()) return;
  WaitForReaders();
  if (overlays) {
    Merge();
    WaitForReaders();
  }
  FreeRetired();
}

// Merge the overlays into the index, and publish a root without overlays. If a writer ended during
// a merge, the index already has some of the overlay's entries, and Merge writes these entries
// again.
void SharedWriter::Merge() {
  auto made = NextRoot();
  auto* root = reinterpret_cast<SharedRoot*>(made.get());
  std::vector<Merged> merged(memory_->tables());
  std::vector<SharedBlob> ranges;
  uint64_t place = 0;
  try {
    for (size_t t = 0; t < memory_->tables(); ++t) {
      SharedTableRoot* table = root->table() + t;
      if (table->overlay_entries == 0) continue;
      GrowFor(t, table, &merged[t]);
      for (const SharedBlob& each : merged[t].old_parts) ranges.push_back(each);
      ranges.push_back({table->overlay, table->overlay_entries * sizeof(SharedChange)});
    }
    ranges.reserve(ranges.size() + 1);
    place = RootPlace();
  } catch (...) {
    for (const Merged& each : merged) {
      for (const SharedIndexPart& part : each.new_parts) {
        arena_.Free(part.offset, part.buckets * sizeof(SharedBucket));
      }
    }
    throw;
  }
  // The code from here on cannot fail.
  for (size_t t = 0; t < memory_->tables(); ++t) {
    if (root->table()[t].overlay_entries != 0) MergeTable(t, root->table() + t, &merged[t]);
  }
  PublishRoot(made.get(), place, std::move(ranges));
  for (size_t t = 0; t < memory_->tables(); ++t) {
    if (merged[t].gone.slots.empty()) continue;
    merged[t].gone.table = t;
    retired_.push_back(std::move(merged[t].gone));
  }
}

void SharedWriter::GrowFor(size_t t, SharedTableRoot* table, Merged* merged) {
  const uint64_t entries = table->overlay_entries;
  const auto* overlay = memory_->At<SharedChange>(table->overlay);
  const std::array<uint64_t, kSharedParts>& rows = tables_[t]->rows;
  std::array<uint64_t, kSharedParts> more = {};
  merged->gone.slots.reserve(entries);
  merged->new_parts.reserve(kSharedParts);
  merged->old_parts.reserve(kSharedParts);
  for (uint64_t i = 0; i < entries; ++i) {
    if (overlay[i].kind != kNewRow) continue;
    ++more[PartOf(hasher_.Hash(static_cast<uint64_t>(overlay[i].key)))];
  }
  const auto fits = [&](int p) { return rows[p] + more[p] <= RoomOf(table->parts[p].buckets); };
  for (int p = 0; p < kSharedParts; ++p) {
    if (more[p] == 0 || fits(p)) continue;
    // Do not count keys that already have an entry in the part.
    const SharedPartView part = View(t, table->parts[p], table->end);
    for (uint64_t i = 0; i < entries; ++i) {
      const uint64_t hash = hasher_.Hash(static_cast<uint64_t>(overlay[i].key));
      if (overlay[i].kind != kNewRow || PartOf(hash) != p) continue;
      if (Find(part, hash, overlay[i].key).bucket != nullptr) --more[p];
    }
    if (fits(p)) continue;
    const uint64_t wanted = rows[p] + more[p];
    const SharedIndexPart old = table->parts[p];
    table->parts[p] = Grown(t, old, wanted + wanted / 4);
    merged->new_parts.push_back(table->parts[p]);
    if (old.buckets != 0) {
      merged->old_parts.push_back({old.offset, old.buckets * sizeof(SharedBucket)});
    }
  }
}

void SharedWriter::MergeTable(size_t t, SharedTableRoot* table, Merged* merged) {
  const uint64_t entries = table->overlay_entries;
  const auto* overlay = memory_->At<SharedChange>(table->overlay);
  std::array<uint64_t, kSharedParts>& rows = tables_[t]->rows;
  for (uint64_t i = 0; i < entries; ++i) {
    if (overlay[i].kind == kNoChange) continue;
    const uint64_t hash = hasher_.Hash(static_cast<uint64_t>(overlay[i].key));
    const int p = PartOf(hash);
    const SharedPartView part = View(t, table->parts[p], table->end);
    const Place found = Find(part, hash, overlay[i].key);
    if (found.bucket != nullptr && SlotAt(found) != overlay[i].slot) {
      merged->gone.slots.push_back(SlotAt(found));
    }
    if (overlay[i].kind == kGone) {
      if (found.bucket == nullptr) continue;
      shared_index::Erase(found);
      --rows[p];
    } else if (found.bucket != nullptr) {
      SetSlot(found, overlay[i].slot);
    } else {
      Insert(part, hash, overlay[i].slot);
      ++rows[p];
    }
  }
  table->overlay = table->overlay_entries = table->rows = 0;
  for (const uint64_t n : rows) table->rows += n;
}

void SharedWriter::FreeRetired() {
  for (Retired& each : retired_) {
    for (const SharedBlob& range : each.ranges) arena_.Free(range.offset, range.bytes);
    if (each.slots.empty() && each.whole.empty()) continue;
    SharedSlots& slots = tables_[each.table]->slots;
    for (const uint32_t slot : each.slots) slots.Free(slot);
    for (const SharedIndexPart& part : each.whole) {
      ForEach(memory_->At<SharedBucket>(part.offset), part.buckets,
              [&](uint32_t slot) { slots.Free(slot); });
      if (part.buckets != 0) arena_.Free(part.offset, part.buckets * sizeof(SharedBucket));
    }
    if (!each.whole.empty()) slots.ReleaseFree();
  }
  retired_.clear();
}

}  // namespace msrec
