// SPDX-License-Identifier: Apache-2.0
#include "readers/shared_reader.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "readers/quantised_rows.h"
#include "readers/read_ahead.h"
#include "rows/row_digest.h"
#include "util/for_blocks.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

constexpr size_t kTaskIds = 4096;  // ids of a task

// The age limits of a table. The root stores the step and the time at which ages are measured.
class RowAge {
 public:
  RowAge(const SharedTableSpec& spec, const SharedTableRoot& root)
      : aged_(spec.aged()), first_time_(static_cast<uint32_t>(root.first_time)) {
    limit_.eviction.max_idle_steps = spec.max_idle_steps;
    limit_.eviction.max_idle_seconds = spec.max_idle_seconds;
    limit_.at = {root.ages_at_step, root.ages_at_time};
  }
  // Return whether a row has reached an age limit.
  bool IsOver(const char* row) const {
    if (!aged_) return false;
    RowAges ages = AgesOfQuantised(row);
    if (ages.last_time == 0) ages.last_time = first_time_;
    return limit_.Passed(ages);
  }

 private:
  AgeLimit limit_;
  bool aged_;
  uint32_t first_time_;
};

}  // namespace

using namespace shared_index;  // NOLINT: functions on the same memory

SharedReader::SharedReader(std::shared_ptr<SharedMemory> memory, int first, int count)
    : memory_(std::move(memory)),
      hasher_(memory_->control().hash_seed),
      first_(first),
      count_(count) {
  if (first < 0 || count < 1 || first > kSharedReaders - count) {
    throw std::invalid_argument("readers must be in [0, " + std::to_string(kSharedReaders) +
                                "), got " + std::to_string(count) + " from " +
                                std::to_string(first));
  }
  for (int i = 0; i < count; ++i) free_.push_back(first + i);
}

int SharedReader::Enter() {
  if (!Ready()) throw std::runtime_error("there is no state in the shared memory yet");
  int place;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    left_.wait(lock, [&] { return !free_.empty(); });
    place = free_.back();
    free_.pop_back();
  }
  SharedControl& control = memory_->control();
  std::atomic<uint64_t>& reads = control.readers[place].sequence;
  uint64_t newest = control.sequence.load();
  for (;;) {
    // The writer first publishes a root, and then reads the places of the readers. This reader
    // first stores its sequence number in its place, and then reads the newest sequence number.
    // Because the writer and this reader each store before they read, the writer sees this reader,
    // or this reader sees the new root.
    reads.store(newest);
    const uint64_t now = control.sequence.load();
    if (now == newest) break;
    newest = now;
  }
  const uint64_t offset = control.roots[newest % kSharedRoots].load();
  if (checked_.load() < newest) {
    try {
      memory_->CheckRoot(offset);
    } catch (...) {
      GiveBack(place);
      throw;
    }
    checked_.store(newest);
  }
  roots_[place].store(memory_->At<SharedRoot>(offset));
  return place;
}

void SharedReader::Leave(int place) {
  Root(place);
  GiveBack(place);
}

void SharedReader::GiveBack(int place) {
  roots_[place].store(nullptr);
  memory_->control().readers[place].sequence.store(0);
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(place);
  left_.notify_one();
}

const SharedRoot& SharedReader::Root(int place) const {
  const SharedRoot* root =
      place < first_ || place >= first_ + count_ ? nullptr : roots_[place].load();
  if (root == nullptr) throw std::invalid_argument("nobody reads at this place");
  return *root;
}

const SharedTableSpec& SharedReader::Spec(size_t table) const {
  if (table >= memory_->tables()) throw std::invalid_argument("there is no such table");
  return memory_->spec(table);
}

uint64_t SharedReader::Rows(int place, size_t table) const {
  Spec(table);
  return Root(place).table()[table].rows;
}

void SharedReader::Digests(int place, size_t table, size_t part,
                           const std::function<void(int64_t, uint64_t)>& fn) const {
  const SharedTableSpec& spec = Spec(table);
  if (part >= kSharedParts) throw std::invalid_argument("there is no such part");
  const SharedTableRoot& root = Root(place).table()[table];
  const auto* rows = memory_->At<char>(spec.rows_offset);
  const size_t stride = memory_->stride(table), header = memory_->layout(table).header();
  const RowAge age(spec, root);
  const auto give = [&](uint64_t slot, int64_t key) {
    const char* row = rows + slot * stride;
    if (!age.IsOver(row)) fn(key, RowDigest(key, row + header, stride - header));
  };
  SharedChange* overlay =
      root.overlay_entries == 0 ? nullptr : memory_->At<SharedChange>(root.overlay);
  const SharedIndexPart& index = root.parts[part];
  ForEach(memory_->At<SharedBucket>(index.offset), index.buckets, [&](uint64_t slot) {
    if (slot >= root.end) return;  // the slot belongs to a change that this root does not include
    const int64_t key = KeyOfQuantised(rows + slot * stride);
    // If the overlay contains a key, the key's index entry may change while this reader reads the
    // entry.
    if (overlay != nullptr) {
      const SharedChange* change =
          FindChange(overlay, root.overlay_entries, hasher_.Hash(static_cast<uint64_t>(key)), key);
      if (change != nullptr && change->kind != kNoChange) return;
    }
    give(slot, key);
  });
  for (uint64_t i = 0; i < root.overlay_entries; ++i) {
    const SharedChange& change = overlay[i];
    if (change.kind != kNewRow || change.slot >= root.end) continue;
    if (PartOf(hasher_.Hash(static_cast<uint64_t>(change.key))) != static_cast<int>(part)) continue;
    give(change.slot, change.key);
  }
}

std::string SharedReader::Copy(const SharedBlob& blob) const {
  return {memory_->At<char>(blob.offset), blob.bytes};
}

// Finds the rows of ids [first, last), in the order of the ids.
class SharedReader::Finder : public ReadAhead<Finder> {
 public:
  Finder(const SharedReader& reader, size_t table, const SharedTableRoot& root, const IdView& ids,
         const IdFilter& filter, size_t first, size_t last)
      : ReadAhead(first, last),
        hasher_(reader.hasher_),
        root_(root),
        ids_(ids),
        filter_(filter),
        age_(reader.memory_->spec(table), root) {
    const SharedMemory& memory = *reader.memory_;
    const SharedTableSpec& spec = memory.spec(table);
    const auto* rows = memory.At<char>(spec.rows_offset);
    stride_ = memory.stride(table);
    header_ = memory.layout(table).header();
    base_ = memory.At<char>(0);
    any_ = {nullptr, 0, rows, stride_, root.end};
    if (root.overlay_entries != 0) overlay_ = memory.At<SharedChange>(root.overlay);
    Begin();
  }

  // Return the row of the next id, as the address of the row's first number. Return null if the id
  // has no row, and &kDroppedRow if the filter drops the id.
  const char* Next() {
    const size_t i = Advance();
    const int64_t id = ids_[i];
    if (filter_.Drops(id)) return &kDroppedRow;
    const char* row = Row(hash_[i % kRing], id);
    if (row == nullptr || age_.IsOver(row)) return nullptr;
    return row + header_;
  }

 private:
  friend ReadAhead;

  SharedPartView Part(uint64_t hash) const {
    const SharedIndexPart& part = root_.parts[PartOf(hash)];
    SharedPartView view = any_;
    view.buckets = reinterpret_cast<SharedBucket*>(base_ + part.offset);
    view.count = part.buckets;
    return view;
  }

  const char* Row(uint64_t hash, int64_t id) const {
    if (overlay_ != nullptr) {
      const SharedChange* change = FindChange(overlay_, root_.overlay_entries, hash, id);
      if (change != nullptr && change->kind != kNoChange) {
        const uint64_t slot = change->slot;
        return change->kind == kNewRow && slot < any_.end ? any_.rows + slot * stride_ : nullptr;
      }
    }
    const Place found = Find(Part(hash), hash, id);
    if (found.bucket == nullptr) return nullptr;
    const uint64_t slot = SlotAt(found);
    return slot < any_.end ? any_.rows + slot * stride_ : nullptr;
  }

  void LoadIndex(size_t i) {
    const uint64_t hash = hasher_.Hash(static_cast<uint64_t>(ids_[i]));
    hash_[i % kRing] = hash;
    const SharedPartView part = Part(hash);
    __builtin_prefetch(part.buckets + Home(hash, part.count));
    if (overlay_ != nullptr) {
      __builtin_prefetch(overlay_ + (hash >> 6 & (root_.overlay_entries - 1)));
    }
  }

  void LoadRow(size_t i) {
    const uint64_t hash = hash_[i % kRing];
    const SharedPartView part = Part(hash);
    if (part.count == 0) return;
    const SharedBucket& bucket = part.buckets[Home(hash, part.count)];
    uint64_t past;
    AnyMatch(bucket, Tag(hash), &past, [&](int entry) {
      const uint64_t slot = bucket.slots[entry].load(std::memory_order_acquire);
      Prefetch(part.rows + slot * stride_, stride_);
      return true;
    });
  }

  const BucketHasher& hasher_;
  const SharedTableRoot& root_;
  const IdView& ids_;
  const IdFilter& filter_;
  const RowAge age_;
  char* base_;
  SharedPartView any_;  // a view of no part
  SharedChange* overlay_ = nullptr;
  size_t stride_, header_;
  uint64_t hash_[kRing];
};

void SharedReader::Lookup(int place, size_t table, const IdView& ids, const IdFilter& filter,
                          const float* unknown, const std::string& name, float* out) const {
  const SharedRoot& root = Root(place);
  const SharedTableSpec& spec = Spec(table);
  IdFilter full = filter;
  full.vocabulary = spec.vocabulary;
  for (size_t i = 0; spec.vocabulary > 0 && spec.outside_zeros == 0 && i < ids.size; ++i) {
    if (full.Inside(ids[i]) || (full.has_padding && ids[i] == full.padding_key)) continue;
    throw std::invalid_argument(
        "table '" + name + "': id " + std::to_string(ids[i]) + " at position " + std::to_string(i) +
        " is outside the vocabulary [0, " + std::to_string(spec.vocabulary) + ")");
  }
  const auto dim = static_cast<size_t>(spec.dim);
  const size_t step = ids.stride * dim;
  const auto read = [&](size_t first, size_t last) {
    Finder finder(*this, table, root.table()[table], ids, full, first, last);
    if (spec.bits == 32) {
      for (size_t i = first; i < last; ++i) {
        const char* row = finder.Next();
        if (row == &kDroppedRow) {
          std::memset(out + i * step, 0, dim * sizeof(float));
        } else {
          std::memcpy(out + i * step, row == nullptr ? static_cast<const void*>(unknown) : row,
                      dim * sizeof(float));
        }
      }
      return;
    }
    const auto pool = kernels_->pool_quantised[spec.bits == 8 ? 0 : 1];
    for (size_t i = first; i < last; ++i) {
      const char* row = finder.Next();
      pool(&row, nullptr, row == &kDroppedRow ? 0 : 1, unknown, 1.0f, spec.dim, out + i * step);
    }
  };
  if (ids.size <= kTaskIds) {
    read(0, ids.size);
  } else {
    ForBlocks(ids.size, kTaskIds, read);
  }
}

}  // namespace msrec
