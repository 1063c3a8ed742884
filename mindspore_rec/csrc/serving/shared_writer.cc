// SPDX-License-Identifier: Apache-2.0
#include "serving/shared_writer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "serving/quantised_rows.h"
#include "serving/shared_change.h"
#include "util/thread_pool.h"

namespace msrec {

using namespace shared_index;  // NOLINT: functions on the same memory

SharedReaderStuck::SharedReaderStuck(int number, double seconds)
    : std::runtime_error("reader " + std::to_string(number) +
                         " of the shared rows has been at one "
                         "answer for " +
                         std::to_string(static_cast<int64_t>(seconds)) + " s"),
      reader(number) {}

// Rows and index parts of an older root.
struct SharedWriter::Retired {
  size_t table = 0;
  std::vector<uint32_t> slots;
  std::vector<SharedIndexPart> whole;  // whose rows are all freed, too
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
  std::array<uint64_t, kSharedParts> rows = {};  // of each part of the newest root's index
};

struct SharedWriter::Change : SharedTableChange {};

SharedWriter::SharedWriter(std::shared_ptr<SharedMemory> memory, double patience_seconds)
    : memory_(std::move(memory)),
      patience_(patience_seconds),
      hasher_(memory_->control().hash_seed),
      arena_(memory_.get()) {
  for (size_t t = 0; t < memory_->tables(); ++t) {
    tables_.push_back(std::make_unique<Table>(memory_.get(), t));
  }
  changes_.resize(memory_->tables());
  Recover();
}

SharedWriter::~SharedWriter() = default;

SharedRoot* SharedWriter::Root() const {
  const uint64_t now = sequence();
  return memory_->At<SharedRoot>(memory_->control().roots[now % kSharedRoots].load());
}

SharedPartView SharedWriter::View(size_t table, const SharedIndexPart& part, uint64_t end) const {
  const SharedTableSpec& spec = memory_->spec(table);
  return {memory_->At<SharedBucket>(part.offset), part.buckets, memory_->At<char>(spec.rows_offset),
          memory_->stride(table), end};
}

// ---------------------------------------------------------------- rows of a change

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
    // A part may have a few more keys than others: three standard deviations.
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

// A copy of a part with room for so many rows.
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

// Insert into the index that replaces the present one, in parallel over its parts.
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
  Settle();  // so that the index has all rows
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
    if (entry.kind == kNoChange) entry.kind = kGone;  // a row of this change is newer
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

// ---------------------------------------------------------------- publish

std::string SharedWriter::Copy(const SharedBlob& blob) const {
  return {memory_->At<char>(blob.offset), blob.bytes};
}
std::string SharedWriter::Blob() const { return published() ? Copy(Root()->blob) : ""; }
std::string SharedWriter::Status() const { return published() ? Copy(Root()->status) : ""; }

SharedBlob SharedWriter::NewBlob(const std::string& contents) {
  const SharedBlob blob{arena_.Allocate(contents.size()), contents.size()};
  std::memcpy(memory_->At<char>(blob.offset), contents.data(), contents.size());
  return blob;
}

uint64_t SharedWriter::Rows(size_t table) const {
  return published() ? Root()->table()[table].rows : 0;
}
uint64_t SharedWriter::FirstTime(size_t table) const {
  return published() ? Root()->table()[table].first_time : 0;
}

std::unique_ptr<char[]> SharedWriter::NextRoot() const {
  const size_t bytes = SharedRoot::Bytes(memory_->tables());
  std::unique_ptr<char[]> made(new char[bytes]);
  auto* root = new (made.get()) SharedRoot;
  for (size_t t = 0; t < memory_->tables(); ++t) new (root->table() + t) SharedTableRoot;
  if (published()) std::memcpy(made.get(), Root(), bytes);
  root->sequence = sequence() + 1;
  root->tables = memory_->tables();
  return made;
}

// Allocate memory for a root, and room in `retired_` for the memory that it makes superfluous.
uint64_t SharedWriter::RootPlace() {
  retired_.reserve(retired_.size() + memory_->tables() + 1);
  return arena_.Allocate(SharedRoot::Bytes(memory_->tables()));
}

// Publish a root: readers see it when this returns. `retired`: ranges that only older roots reach,
// with room for one more.
void SharedWriter::PublishRoot(const char* root, uint64_t offset, std::vector<SharedBlob> retired) {
  const size_t bytes = SharedRoot::Bytes(memory_->tables());
  SharedControl& control = memory_->control();
  const uint64_t before = control.sequence.load();
  std::memcpy(memory_->At<char>(offset), root, bytes);
  if (before != 0) retired.push_back({control.roots[before % kSharedRoots].load(), bytes});
  retired_.emplace_back();
  retired_.back().ranges = std::move(retired);
  control.roots[(before + 1) % kSharedRoots].store(offset);
  control.sequence.store(before + 1);
}

void SharedWriter::Publish(const std::string& blob, const std::string& status) {
  Settle();
  auto made = NextRoot();
  auto* root = reinterpret_cast<SharedRoot*>(made.get());
  std::vector<SharedBlob> fresh, old;
  std::vector<Retired> retired;
  uint64_t place = 0;
  try {
    fresh.reserve(memory_->tables() + 2);
    if (root->blob.bytes != 0 || root->blob.offset != 0) old = {root->blob, root->status};
    root->blob = NewBlob(blob);
    fresh.push_back(root->blob);
    root->status = NewBlob(status);
    fresh.push_back(root->status);
    root->state = root->sequence;
    for (size_t t = 0; t < changes_.size(); ++t) {
      if (changes_[t] == nullptr) continue;
      const Change& change = *changes_[t];
      SharedTableRoot& table = root->table()[t];
      table.ages_at_step = change.ages_at.step;
      table.ages_at_time = change.ages_at.time;
      table.first_time = change.first_time;
      table.end = tables_[t]->slots.end();
      if (change.replaces) {
        Retired gone;
        gone.table = t;
        table.rows = 0;
        for (int p = 0; p < kSharedParts; ++p) {
          gone.whole.push_back(table.parts[p]);
          table.parts[p] = change.parts[p];
          table.rows += change.rows[p];
        }
        retired.push_back(std::move(gone));
      } else if (!change.staged.entries().empty()) {
        const uint64_t entries = change.staged.places();
        table.overlay = arena_.Allocate(entries * sizeof(SharedChange));
        table.overlay_entries = entries;
        fresh.push_back({table.overlay, entries * sizeof(SharedChange)});
        auto* overlay = memory_->At<SharedChange>(table.overlay);
        std::memset(static_cast<void*>(overlay), 0, entries * sizeof(SharedChange));
        for (const SharedTableChange::Entry& each : change.staged.entries()) {
          const uint64_t hash = hasher_.Hash(static_cast<uint64_t>(each.key));
          *FindChange(overlay, entries, hash, each.key) = {each.key, each.slot, each.kind};
        }
      }
    }
    old.reserve(old.size() + 1);
    place = RootPlace();
  } catch (...) {
    for (const SharedBlob& each : fresh) arena_.Free(each.offset, each.bytes);
    throw;
  }
  PublishRoot(made.get(), place, std::move(old));
  for (Retired& each : retired) retired_.push_back(std::move(each));
  for (size_t t = 0; t < changes_.size(); ++t) {
    if (changes_[t] != nullptr && changes_[t]->replaces) tables_[t]->rows = changes_[t]->rows;
    changes_[t].reset();
  }
}

void SharedWriter::PublishStatus(const std::string& status) {
  if (!published()) throw std::invalid_argument("a state must be published before a status");
  Settle();
  auto made = NextRoot();
  auto* root = reinterpret_cast<SharedRoot*>(made.get());
  std::vector<SharedBlob> old = {root->status, {}};
  old.pop_back();  // room for one more
  const uint64_t place = RootPlace();
  try {
    root->status = NewBlob(status);
  } catch (...) {
    arena_.Free(place, SharedRoot::Bytes(memory_->tables()));
    throw;
  }
  PublishRoot(made.get(), place, std::move(old));
}

// ---------------------------------------------------------------- settle

// Wait until nobody reads a root older than the newest.
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

// Merge the overlays into the index, and publish a root without them. Repeating it does no harm: a
// writer that ended in the middle leaves an index with some of the entries.
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
  // From here on nothing fails.
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
    // Many keys have a row already: only the others need room.
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

// ---------------------------------------------------------------- after another writer

// Mark all ranges that a root reaches, except rows, as allocated.
void SharedWriter::TakeRoot(const SharedRoot& root) {
  arena_.Take(memory_->control().roots[root.sequence % kSharedRoots].load(),
              SharedRoot::Bytes(root.tables));
  arena_.Take(root.blob.offset, root.blob.bytes);
  arena_.Take(root.status.offset, root.status.bytes);
  for (size_t t = 0; t < root.tables; ++t) {
    const SharedTableRoot& table = root.table()[t];
    if (table.overlay_entries != 0) {
      arena_.Take(table.overlay, table.overlay_entries * sizeof(SharedChange));
    }
    for (int p = 0; p < kSharedParts; ++p) {
      const SharedIndexPart& part = table.parts[p];
      if (part.buckets == 0) continue;
      arena_.Take(part.offset, part.buckets * sizeof(SharedBucket));
      tables_[t]->rows[p] = 0;
      ForEach(memory_->At<SharedBucket>(part.offset), part.buckets, [&](uint32_t slot) {
        if (slot >= table.end) {
          throw SharedDamaged("the shared memory is damaged: a row lies outside its table");
        }
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
  // Older roots are not known any more: memory that only they reach is free once nobody reads them.
  WaitForReaders();
  TakeRoot(*Root());
  bool overlays = false;
  for (size_t t = 0; t < memory_->tables(); ++t) {
    overlays = overlays || Root()->table()[t].overlay_entries != 0;
  }
  if (overlays) {
    Merge();
    WaitForReaders();
    // Only slots in the index are marked as used below, so replaced rows need not be freed.
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
