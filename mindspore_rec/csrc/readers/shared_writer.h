// SPDX-License-Identifier: Apache-2.0
//
// SharedWriter: changes the tables of a SharedMemory while other processes read the tables. A
// change is prepared in memory that readers do not use yet, and then published. A reader reads
// either all parts of a change or no part.
//
// A delta is published as an overlay: a small hash table of the changed keys. Readers search the
// overlay first, and then the index. A change that replaces all rows is published as a new index,
// without an overlay.
//
//   Step 1 puts new rows into free slots, and their keys into an overlay. No reader reaches the new
//   rows yet. Step 2 publishes a root with the overlay. A reader that calls Enter after step 2 sees
//   the change. Step 3 settles the change: the writer waits until no reader uses an older root.
//   After the wait in step 3, all readers search the overlay first, so the writer can change the
//   index entries of the overlay's keys one by one. Step 4 publishes a root without the overlay,
//   and waits until no reader uses an older root. The writer then frees the overlay, the old rows
//   and other memory that only older roots reach.
//
// Readers never wait for the writer. The process of the writer may end at any moment. The next
// writer finds the newest root, completes steps 3 and 4 if necessary, and frees all memory that no
// root reaches.
//
// SharedWriter is not thread safe. Methods throw std::invalid_argument for bad arguments. If a
// method throws std::bad_alloc, nothing has been published, and Abort drops the change.
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

// Thrown if a reader has used an older root for too long.
struct SharedReaderStuck : std::runtime_error {
  SharedReaderStuck(int reader, double seconds);
  int reader;
};

class SharedWriter {
 public:
  // Start from the newest root, if the memory already has a root. Throws SharedDamaged if the
  // memory is inconsistent, and SharedReaderStuck if a reader uses an older root for too long.
  explicit SharedWriter(std::shared_ptr<SharedMemory> memory, double patience_seconds = 10.0);
  ~SharedWriter();

  // ---- one change

  // Reserve memory for `rows` rows in the new index, so that the index need not grow. Requires an
  // earlier Clear.
  void Reserve(size_t table, uint64_t rows);
  // Drop all rows of the table, and all unpublished changes of the table's rows.
  void Clear(size_t table);
  // Set rows. If a key occurs twice, the later row counts. If `last_steps` or `last_times` is null,
  // 0 is stored. If the table has a vocabulary, all keys must be in the vocabulary.
  void Upsert(size_t table, const IdView& keys, const float* values, const uint32_t* last_steps,
              const uint32_t* last_times);
  // Do the same as Upsert() for rows that are already quantised. Each row has `width` bytes: scale,
  // offset and codes. `width` must equal the number of bytes of the table's int8 or int4 rows.
  void UpsertCodes(size_t table, const IdView& keys, const uint8_t* codes, size_t width,
                   const uint32_t* last_steps, const uint32_t* last_times);
  // Drop rows. Requires: no vocabulary.
  void Erase(size_t table, const IdView& keys);
  // Drop the rows that have reached an age limit. SetAgesAt sets the step and time at which ages
  // are measured. Lookups already treat rows that have reached an age limit as missing; EraseOld
  // frees the memory of these rows. EraseOld first settles the previous change. EraseOld does
  // nothing if the change replaces all rows.
  void EraseOld(size_t table);
  void SetAgesAt(size_t table, int64_t step, int64_t time);
  void SetFirstTime(size_t table, uint32_t time);
  // Publish the prepared change, together with `blob` (data about the state) and `status`. The call
  // first settles the previous change. If settling throws SharedReaderStuck, the new change stays
  // prepared.
  void Publish(const std::string& blob, const std::string& status);
  // Publish `status` together with the state that is already published. Requires: no change is
  // prepared.
  void PublishStatus(const std::string& status);
  // Drop the unpublished changes.
  void Abort();

  // Do steps 3 and 4 for the last published change, unless these steps are already done. After
  // SharedReaderStuck, Settle may be called again.
  void Settle();

  // ---- the newest root

  bool published() const { return sequence() != 0; }
  uint64_t sequence() const { return memory_->control().sequence.load(); }
  std::string Blob() const;
  std::string Status() const;
  uint64_t Rows(size_t table) const;
  uint64_t FirstTime(size_t table) const;

 private:
  struct Change;   // an unpublished change of a table
  struct Retired;  // memory to free when no reader uses an older root
  struct Table;

  SharedRoot* Root() const;
  SharedPartView View(size_t table, const SharedIndexPart& part, uint64_t end) const;
  Change& Changed(size_t table);
  void Recover();
  void TakeRoot(const SharedRoot& root);
  // The contents of rows, either `values` or `codes`. In `codes`, each row has `width` bytes:
  // scale, offset and codes.
  struct Numbers {
    const float* values;
    const uint8_t* codes;
    size_t width;
  };
  // Write row i of `numbers`, the row's key and the row's ages into a slot.
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
  // The two parts of Merge for one table: GrowFor enlarges the index, then MergeTable changes the
  // index.
  struct Merged;
  void GrowFor(size_t table, SharedTableRoot* root, Merged* merged);
  void MergeTable(size_t table, SharedTableRoot* root, Merged* merged);
  void FreeRetired();

  const std::shared_ptr<SharedMemory> memory_;
  const double patience_;
  const BucketHasher hasher_;
  SharedArena arena_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<std::unique_ptr<Change>> changes_;  // null if the table does not change
  std::vector<Retired> retired_;
};

}  // namespace msrec
