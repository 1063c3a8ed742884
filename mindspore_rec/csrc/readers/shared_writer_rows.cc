// SPDX-License-Identifier: Apache-2.0
//
// SharedWriter: prepares the rows of a change.
#include <algorithm>
#include <cstring>
#include <limits>

#include "readers/quantised_rows.h"
#include "readers/shared_writer_parts.h"
#include "util/thread_pool.h"

namespace msrec {

using namespace shared_index;  // NOLINT: functions on the same memory

SharedWriter::Change& SharedWriter::Changed(size_t table) {
  if (table >= tables_.size()) {
    throw std::invalid_argument("table must be in [0, " + std::to_string(tables_.size()) +
                                "), got " + std::to_string(table));
  }
  if (changes_[table] == nullptr) {
    changes_[table] = std::make_unique<Change>();
    if (published()) {
      const SharedTableRoot& now = Root()->table()[table];
      changes_[table]->ages_at = {now.ages_at_step, now.ages_at_time};
      changes_[table]->first_time = now.first_time;
    }
  }
  return *changes_[table];
}

void SharedWriter::SetAgesAt(size_t table, int64_t step, int64_t time) {
  Changed(table).ages_at = {step, time};
}

void SharedWriter::SetFirstTime(size_t table, uint32_t time) { Changed(table).first_time = time; }

SharedIndexPart SharedWriter::NewPart(uint64_t buckets) {
  const SharedIndexPart part{arena_.Allocate(buckets * sizeof(SharedBucket)), buckets};
  std::memset(memory_->At<char>(part.offset), 0, buckets * sizeof(SharedBucket));
  return part;
}

void SharedWriter::Clear(size_t table) {
  Change& change = Changed(table);
  for (const SharedTableChange::Entry& each : change.staged.entries()) {
    if (each.kind == kNewRow) tables_[table]->slots.Free(each.slot);
  }
  change.staged = {};
  if (change.replaces) {
    for (SharedIndexPart& part : change.parts) {
      ForEach(memory_->At<SharedBucket>(part.offset), part.buckets,
              [&](uint32_t slot) { tables_[table]->slots.Free(slot); });
      if (part.buckets != 0) arena_.Free(part.offset, part.buckets * sizeof(SharedBucket));
    }
  }
  change.replaces = true;
  change.parts = {};
  change.rows = {};
}

void SharedWriter::Reserve(size_t table, uint64_t rows) {
  Change& change = Changed(table);
  if (!change.replaces) throw std::invalid_argument("the table must be cleared before");
  for (int p = 0; p < kSharedParts; ++p) {
    // Each part reserves memory for the mean number of keys per part plus three standard
    // deviations.
    const double mean = static_cast<double>(rows) / kSharedParts;
    const auto most = static_cast<uint64_t>(mean + 3 * __builtin_sqrt(mean)) + 1;
    const uint64_t buckets = BucketsFor(most);
    if (change.parts[p].buckets >= buckets) continue;
    const SharedIndexPart larger = Grown(table, change.parts[p], most);
    if (change.parts[p].buckets != 0) {
      arena_.Free(change.parts[p].offset, change.parts[p].buckets * sizeof(SharedBucket));
    }
    change.parts[p] = larger;
  }
}

// Return a copy of a part with enough memory for `rows` rows.
SharedIndexPart SharedWriter::Grown(size_t table, const SharedIndexPart& part, uint64_t rows) {
  const SharedIndexPart larger = NewPart(std::max(BucketsFor(rows), part.buckets));
  const uint64_t any = std::numeric_limits<uint64_t>::max();
  const SharedPartView to = View(table, larger, any);
  ForEach(memory_->At<SharedBucket>(part.offset), part.buckets, [&](uint32_t slot) {
    const int64_t key = KeyOfQuantised(to.rows + slot * to.stride);
    Insert(to, hasher_.Hash(static_cast<uint64_t>(key)), slot);
  });
  return larger;
}

void SharedWriter::WriteRow(size_t table, uint32_t slot, int64_t key, const Numbers& numbers,
                            size_t i, uint32_t step, uint32_t time) {
  const SharedTableSpec& spec = memory_->spec(table);
  const QuantisedLayout layout = memory_->layout(table);
  char* row = memory_->Row(spec, memory_->stride(table), slot);
  SetKeyOfQuantised(row, key);
  if (layout.aged) SetAgesOfQuantised(row, {step, time});
  const auto dim = static_cast<size_t>(spec.dim);
  if (numbers.codes != nullptr) {
    std::memcpy(row + layout.header(), numbers.codes + i * numbers.width, numbers.width);
  } else if (spec.bits == 32) {
    std::memcpy(row + layout.header(), numbers.values + i * dim, sizeof(float) * dim);
  } else {
    QuantiseNumbers(numbers.values + i * dim, spec.dim, spec.bits, row + layout.header());
  }
}

void SharedWriter::Upsert(size_t table, const IdView& keys, const float* values,
                          const uint32_t* last_steps, const uint32_t* last_times) {
  Put(table, keys, {values, nullptr, 0}, last_steps, last_times);
}

void SharedWriter::UpsertCodes(size_t table, const IdView& keys, const uint8_t* codes, size_t width,
                               const uint32_t* last_steps, const uint32_t* last_times) {
  const int32_t bits = memory_->spec(table).bits;
  const size_t bytes = 4 + memory_->layout(table).code_bytes();
  if (bits == 32 || width != bytes) {
    throw std::invalid_argument(
        "codes must have " +
        (bits == 32 ? std::string("rows of int8 or int4 to go to, the table has float32")
                    : std::to_string(bytes) + " bytes a row, got " + std::to_string(width)));
  }
  Put(table, keys, {nullptr, codes, width}, last_steps, last_times);
}

void SharedWriter::Put(size_t table, const IdView& keys, const Numbers& numbers,
                       const uint32_t* last_steps, const uint32_t* last_times) {
  const Change& change = Changed(table);
  const int64_t vocabulary = memory_->spec(table).vocabulary;
  for (size_t i = 0; vocabulary > 0 && i < keys.size; ++i) {
    if (keys[i] >= 0 && keys[i] < vocabulary) continue;
    throw std::invalid_argument("keys[" + std::to_string(i) + "] is " + std::to_string(keys[i]) +
                                ", outside the vocabulary [0, " + std::to_string(vocabulary) + ")");
  }
  if (change.replaces) {
    UpsertWhole(table, keys, numbers, last_steps, last_times);
  } else {
    UpsertChanges(table, keys, numbers, last_steps, last_times);
  }
}

// Insert rows into the new index, which will replace the current index. The parts of the index are
// processed in parallel.
void SharedWriter::UpsertWhole(size_t table, const IdView& keys, const Numbers& numbers,
                               const uint32_t* steps, const uint32_t* times) {
  Change& change = Changed(table);
  const size_t n = keys.size;
  std::vector<uint64_t> hashes(n);
  std::vector<uint32_t> order(n), slots(n);
  size_t begin[kSharedParts + 1] = {};
  for (size_t i = 0; i < n; ++i) {
    hashes[i] = hasher_.Hash(static_cast<uint64_t>(keys[i]));
    ++begin[PartOf(hashes[i]) + 1];
  }
  for (int p = 0; p < kSharedParts; ++p) begin[p + 1] += begin[p];
  size_t next[kSharedParts];
  std::copy(begin, begin + kSharedParts, next);
  for (size_t i = 0; i < n; ++i) order[next[PartOf(hashes[i])]++] = static_cast<uint32_t>(i);
  for (int p = 0; p < kSharedParts; ++p) {
    const uint64_t rows = change.rows[p] + (begin[p + 1] - begin[p]);
    if (begin[p + 1] == begin[p] || rows <= RoomOf(change.parts[p].buckets)) continue;
    const SharedIndexPart larger = Grown(table, change.parts[p], rows + rows / 4);
    if (change.parts[p].buckets != 0) {
      arena_.Free(change.parts[p].offset, change.parts[p].buckets * sizeof(SharedBucket));
    }
    change.parts[p] = larger;
  }
  tables_[table]->slots.Allocate(n, slots.data());
  std::vector<uint32_t> spare[kSharedParts];
  ThreadPool::Global().ParallelFor(kSharedParts, [&](int64_t p) {
    constexpr size_t kAhead = 16;
    const SharedPartView part = View(table, change.parts[p], std::numeric_limits<uint64_t>::max());
    for (size_t j = begin[p]; j < begin[p + 1]; ++j) {
      if (j + kAhead < begin[p + 1]) {
        __builtin_prefetch(part.buckets + Home(hashes[order[j + kAhead]], part.count), 1);
      }
      const size_t i = order[j];
      const Place found = Find(part, hashes[i], keys[i]);
      const uint32_t slot = found.bucket == nullptr ? slots[i] : SlotAt(found);
      if (found.bucket != nullptr) spare[p].push_back(slots[i]);
      WriteRow(table, slot, keys[i], numbers, i, steps != nullptr ? steps[i] : 0,
               times != nullptr ? times[i] : 0);
      if (found.bucket != nullptr) continue;
      Insert(part, hashes[i], slot);
      ++change.rows[p];
    }
  });
  for (const std::vector<uint32_t>& some : spare) {
    for (const uint32_t slot : some) tables_[table]->slots.Free(slot);
  }
}

void SharedWriter::UpsertChanges(size_t table, const IdView& keys, const Numbers& numbers,
                                 const uint32_t* steps, const uint32_t* times) {
  Change& change = Changed(table);
  const size_t n = keys.size;
  std::vector<uint32_t> slots(n);
  change.staged.Reserve(n);
  tables_[table]->slots.Allocate(n, slots.data());
  for (size_t i = 0; i < n; ++i) {
    SharedTableChange::Entry& entry =
        *change.staged.At(hasher_.Hash(static_cast<uint64_t>(keys[i])), keys[i]);
    if (entry.kind == kNewRow) tables_[table]->slots.Free(slots[i]);
    if (entry.kind != kNewRow) entry.slot = slots[i];
    entry.kind = kNewRow;
    WriteRow(table, entry.slot, keys[i], numbers, i, steps != nullptr ? steps[i] : 0,
             times != nullptr ? times[i] : 0);
  }
}

void SharedWriter::Erase(size_t table, const IdView& keys) {
  Change& change = Changed(table);
  if (memory_->spec(table).vocabulary > 0) {
    throw std::invalid_argument("rows are of a vocabulary and cannot be erased");
  }
  if (!change.replaces) change.staged.Reserve(keys.size);
  for (size_t i = 0; i < keys.size; ++i) {
    const uint64_t hash = hasher_.Hash(static_cast<uint64_t>(keys[i]));
    if (change.replaces) {
      const int p = PartOf(hash);
      const Place found =
          Find(View(table, change.parts[p], std::numeric_limits<uint64_t>::max()), hash, keys[i]);
      if (found.bucket == nullptr) continue;
      tables_[table]->slots.Free(SlotAt(found));
      shared_index::Erase(found);
      --change.rows[p];
    } else {
      SharedTableChange::Entry& entry = *change.staged.At(hash, keys[i]);
      if (entry.kind == kNewRow) tables_[table]->slots.Free(entry.slot);
      entry.kind = kGone;
      entry.slot = kNoSlot;
    }
  }
}

void SharedWriter::EraseOld(size_t table) {
  Change& change = Changed(table);
  const SharedTableSpec& spec = memory_->spec(table);
  if (!spec.aged() || change.replaces || !published()) return;
  Settle();  // merges the overlay, so that the index has all rows
  Eviction eviction;
  eviction.max_idle_steps = spec.max_idle_steps;
  eviction.max_idle_seconds = spec.max_idle_seconds;
  const AgeLimit limit{eviction, change.ages_at};
  std::vector<int64_t> old;
  for (const SharedIndexPart& part : Root()->table()[table].parts) {
    ForEach(memory_->At<SharedBucket>(part.offset), part.buckets, [&](uint32_t slot) {
      const char* row = memory_->Row(spec, memory_->stride(table), slot);
      RowAges ages = AgesOfQuantised(row);
      if (ages.last_time == 0) ages.last_time = static_cast<uint32_t>(change.first_time);
      if (limit.Passed(ages)) old.push_back(KeyOfQuantised(row));
    });
  }
  change.staged.Reserve(old.size());
  for (const int64_t key : old) {
    SharedTableChange::Entry& entry =
        *change.staged.At(hasher_.Hash(static_cast<uint64_t>(key)), key);
    if (entry.kind == kNoChange) entry.kind = kGone;  // else the change has a newer row
  }
}

void SharedWriter::Abort() {
  for (size_t t = 0; t < changes_.size(); ++t) {
    if (changes_[t] == nullptr) continue;
    Clear(t);
    changes_[t].reset();
    tables_[t]->slots.ReleaseFree();
  }
}

}  // namespace msrec
