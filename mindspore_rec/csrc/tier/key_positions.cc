// SPDX-License-Identifier: Apache-2.0
#include "tier/key_positions.h"

#include <algorithm>
#include <stdexcept>

namespace msrec {
namespace {

constexpr double kFull = 0.88;
constexpr double kAfterGrowth = 0.80;

// Bytes that malloc adds to each block.
constexpr size_t kBlockOverhead = 16;

}  // namespace

KeyPositions::KeyPositions() : tables_(kTables), bytes_(kTables * sizeof(Table)) {}

uint32_t KeyPositions::LowerBound(const Table& table, uint64_t hash) {
  if (table.capacity == 0) return 0;
  uint32_t i = Home(table, hash);
  while (i < table.end && !table.entries[i].empty() && table.entries[i].hash() < hash) ++i;
  return i;
}

uint64_t KeyPositions::Find(int64_t key) const {
  const auto [part, hash] = PlaceOf(key);
  const Table& table = tables_[part];
  const uint32_t i = LowerBound(table, hash);
  if (i == table.end || table.entries[i].empty() || table.entries[i].hash() != hash) return kNone;
  return table.entries[i].position();
}

uint32_t KeyPositions::Probes(int64_t key) const {
  const auto [part, hash] = PlaceOf(key);
  const Table& table = tables_[part];
  return table.capacity == 0 ? 0 : LowerBound(table, hash) - Home(table, hash) + 1;
}

uint64_t KeyPositions::Put(int64_t key, uint64_t position) {
  const auto [part, hash] = PlaceOf(key);
  Table& table = tables_[part];
  for (;;) {
    const uint32_t i = LowerBound(table, hash);
    if (i < table.end && !table.entries[i].empty() && table.entries[i].hash() == hash) {
      const uint64_t before = table.entries[i].position();
      table.entries[i] = Entry(hash, position);
      return before;
    }
    uint32_t gap = i;
    while (gap < table.end && !table.entries[gap].empty()) ++gap;
    if (table.size + 1 > kFull * table.capacity) {
      Resize(&table, static_cast<uint32_t>((table.size + 1) / kAfterGrowth) + 1);
      continue;
    }
    if (gap == table.end) {  // rare: the last homes have many entries
      Resize(&table, table.capacity, 2 * (table.end - table.capacity));
      continue;
    }
    std::copy_backward(&table.entries[i], &table.entries[gap], &table.entries[gap] + 1);
    table.entries[i] = Entry(hash, position);
    ++table.size;
    ++size_;
    return kNone;
  }
}

uint64_t KeyPositions::Erase(int64_t key) {
  const auto [part, hash] = PlaceOf(key);
  Table& table = tables_[part];
  uint32_t i = LowerBound(table, hash);
  if (i == table.end || table.entries[i].empty() || table.entries[i].hash() != hash) return kNone;
  const uint64_t before = table.entries[i].position();
  // The entries that directly follow the removed entry move back by one place, up to the first
  // entry that is at its home place.
  for (; i + 1 < table.end; ++i) {
    const Entry next = table.entries[i + 1];
    if (next.empty() || Home(table, next.hash()) == i + 1) break;
    table.entries[i] = next;
  }
  table.entries[i] = Entry();
  --table.size;
  --size_;
  if (table.size == 0) {
    bytes_ -= table.end * sizeof(Entry) + kBlockOverhead;
    table = Table();
  } else if (table.size < 0.4 * table.capacity && table.capacity > 64) {
    try {
      Resize(&table, static_cast<uint32_t>(table.size / kAfterGrowth) + 1);
    } catch (const std::bad_alloc&) {
      // If memory is short, the table stays larger than necessary, and remains valid.
    }
  }
  return before;
}

void KeyPositions::Resize(Table* table, uint32_t capacity, uint32_t tail) {
  tail = std::max(tail, 4 + capacity / 64);
  for (;; tail *= 2) {
    Table resized;
    resized.capacity = capacity;
    resized.end = capacity + tail;
    resized.entries.reset(new Entry[resized.end]);
    resized.size = table->size;
    uint32_t next = 0;  // the place after the entry placed last
    bool fits = true;
    for (uint32_t i = 0; i < table->end && fits; ++i) {
      const Entry entry = table->entries[i];
      if (entry.empty()) continue;
      next = std::max(next, Home(resized, entry.hash()));
      fits = next < resized.end;
      if (fits) resized.entries[next++] = entry;
    }
    if (!fits) continue;
    if (table->end != 0) bytes_ -= table->end * sizeof(Entry) + kBlockOverhead;
    bytes_ += resized.end * sizeof(Entry) + kBlockOverhead;
    *table = std::move(resized);
    return;
  }
}

}  // namespace msrec
