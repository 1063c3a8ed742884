// SPDX-License-Identifier: Apache-2.0
//
// SharedWriter: changes the tables of a SharedMemory while other processes read them. A change is
// prepared in memory that no reader reaches, then published: readers see all of it or nothing.
//
// A delta is published as an overlay, a small hash table of the changed keys that lies in front of
// the index (or, where it replaces all rows, as another index):
//
//   1. New rows go into free slots, their keys into an overlay. Nobody reads either.
//   2. Publish: a root with the overlay. Readers that enter from now on see the change.
//   3. Settle: wait until nobody reads an older root. All readers now look into the overlay first,
//      so that the entries of its keys in the index can be changed one by one.
//   4. Publish a root without the overlay, wait until nobody reads an older one, and free the
//      overlay, the old rows and other memory that only older roots reach.
//
// Readers never wait. This process may end at any moment: the next one finds the newest root, does
// 3 and 4 once more where they were not done, and frees what no root reaches.
//
// One thread at a time. Throws std::bad_alloc, and then nothing was published and Abort forgets
// the change; std::invalid_argument for bad arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "readers/shared_arena.h"
#include "readers/shared_index.h"
#include "readers/shared_memory.h"
#include "readers/shared_slots.h"
#include "rows/batch.h"
#include "util/bucket_hash.h"

namespace msrec {

// A reader has read the same root for too long.
struct SharedReaderStuck : std::runtime_error {
  SharedReaderStuck(int reader, double seconds);
  int reader;
};

class SharedWriter {
 public:
  // Start from the newest root, if there is one. Throws SharedDamaged where the memory is not
  // consistent; SharedReaderStuck as Settle.
  explicit SharedWriter(std::shared_ptr<SharedMemory> memory, double patience_seconds = 10.0);
  ~SharedWriter();

  // ---- one change

  // Reserve an index for so many rows, so that it need not grow. Requires Clear before.
  void Reserve(size_t table, uint64_t rows);
  // Drop all rows. Must be the first change of the table.
  void Clear(size_t table);
  // Set rows; of a key given twice the last one stays. Null ages: 0. Keys of a vocabulary must be
  // in it.
  void Upsert(size_t table, const IdView& keys, const float* values, const uint32_t* last_steps,
              const uint32_t* last_times);
  // The same with rows that are quantised already: of each its scale, offset and codes, `width`
  // bytes, as many as the table's rows of int8 or int4 have.
  void UpsertCodes(size_t table, const IdView& keys, const uint8_t* codes, size_t width,
                   const uint32_t* last_steps, const uint32_t* last_times);
  // Drop rows. Requires: no vocabulary.
  void Erase(size_t table, const IdView& keys);
  // Drop rows past the table's age limits at the time of SetAgesAt. Readers do not see such rows
  // in any case; this frees their memory.
  void EraseOld(size_t table);
  void SetAgesAt(size_t table, int64_t step, int64_t time);
  void SetFirstTime(size_t table, uint32_t time);
  // Publish the change with a blob of the state and one of its status. Settles the last change
  // first; throws SharedReaderStuck where that is not possible, and this change is kept.
  void Publish(const std::string& blob, const std::string& status);
  // Publish another status; the state stays. Requires: no change is prepared.
  void PublishStatus(const std::string& status);
  // Drop the changes that are not published.
  void Abort();

  // Do steps 3 and 4 for the last published change, unless done. Throws SharedReaderStuck; it can
  // be called again.
  void Settle();

  // ---- the newest root

  bool published() const { return sequence() != 0; }
  uint64_t sequence() const { return memory_->control().sequence.load(); }
  std::string Blob() const;
  std::string Status() const;
  uint64_t Rows(size_t table) const;
  uint64_t FirstTime(size_t table) const;

 private:
  struct Change;   // of a table, not published yet
  struct Retired;  // memory to free when nobody reads an older root
  struct Table;

  SharedRoot* Root() const;
  SharedPartView View(size_t table, const SharedIndexPart& part, uint64_t end) const;
  Change& Changed(size_t table);
  void Recover();
  void TakeRoot(const SharedRoot& root);
  // The numbers of rows: floats, or `width` bytes of codes each.
  struct Numbers {
    const float* values;
    const uint8_t* codes;
    size_t width;
  };
  // Write the numbers of row i.
  void WriteRow(size_t table, uint32_t slot, int64_t key, const Numbers& numbers, size_t i,
                uint32_t step, uint32_t time);
  void Put(size_t table, const IdView& keys, const Numbers& numbers, const uint32_t* steps,
           const uint32_t* times);
  void UpsertWhole(size_t table, const IdView& keys, const Numbers& numbers, const uint32_t* steps,
                   const uint32_t* times);
  void UpsertChanges(size_t table, const IdView& keys, const Numbers& numbers,
                     const uint32_t* steps, const uint32_t* times);
  SharedIndexPart NewPart(uint64_t buckets);
  SharedIndexPart Grown(size_t table, const SharedIndexPart& part, uint64_t rows);
  std::string Copy(const SharedBlob& blob) const;
  SharedBlob NewBlob(const std::string& contents);
  uint64_t RootPlace();
  void PublishRoot(const char* root, uint64_t place, std::vector<SharedBlob> retired);
  std::unique_ptr<char[]> NextRoot() const;
  void WaitForReaders();
  void Merge();
  // Parts of Merge for one table: make its index large enough; then change it.
  struct Merged;
  void GrowFor(size_t table, SharedTableRoot* root, Merged* merged);
  void MergeTable(size_t table, SharedTableRoot* root, Merged* merged);
  void FreeRetired();

  const std::shared_ptr<SharedMemory> memory_;
  const double patience_;
  const BucketHasher hasher_;
  SharedArena arena_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<std::unique_ptr<Change>> changes_;  // null: the table does not change
  std::vector<Retired> retired_;
};

}  // namespace msrec
