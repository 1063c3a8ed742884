// SPDX-License-Identifier: Apache-2.0
//
// SharedReader: looks up rows in a SharedMemory that another process changes. A thread calls Enter,
// which chooses the newest root. Until the thread calls Leave, the thread reads from the chosen
// root. All lookups between Enter and Leave use the same state. Readers never wait for the writer,
// but the writer waits for readers of old roots.
//
// All methods are thread safe. Methods throw std::invalid_argument for bad arguments, and
// SharedDamaged for inconsistent memory.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "readers/shared_index.h"
#include "readers/shared_memory.h"
#include "rows/batch.h"
#include "rows/kernels.h"
#include "util/bucket_hash.h"

namespace msrec {

class SharedReader {
 public:
  // This process uses the reader places `first` to `first` + `count` - 1 of the shared memory.
  SharedReader(std::shared_ptr<SharedMemory> memory, int first, int count);

  // Return whether the writer has published a state.
  bool Ready() const { return memory_->control().sequence.load() != 0; }

  // Begin to read the newest root, and occupy a free reader place. If no place is free, wait.
  // Returns the reader place. Throws std::runtime_error if no state has been published.
  int Enter();
  void Leave(int place);

  // Throws if there is no table with number `table`.
  int32_t Dim(size_t table) const { return Spec(table).dim; }

  // ---- The methods below have an argument `place`, which Enter has returned.

  // Return the number of the state that is read in `place`: the sequence number of the first root
  // that contained the state's blob.
  uint64_t State(int place) const { return Root(place).state; }
  uint64_t Sequence(int place) const { return Root(place).sequence; }
  std::string Blob(int place) const { return Copy(Root(place).blob); }
  std::string Status(int place) const { return Copy(Root(place).status); }
  uint64_t Rows(int place, size_t table) const;
  // Call fn(key, digest) for each row of a part of the table, in no fixed order. A table has
  // kSharedParts parts. The digest (rows/row_digest.h) of a float32 row covers the row's numbers.
  // The digest of a quantised row covers scale, offset and codes.
  void Digests(int place, size_t table, size_t part,
               const std::function<void(int64_t, uint64_t)>& fn) const;
  // Write the rows of ids to out [ids.size, dim]. The row of ids[i] is at row i * ids.stride of the
  // output. If the filter drops an id, the id's output is zeros. If an id has no row, the id's
  // output is `unknown`. Error messages begin with `name`.
  void Lookup(int place, size_t table, const IdView& ids, const IdFilter& filter,
              const float* unknown, const std::string& name, float* out) const;

 private:
  void GiveBack(int place);

  class Finder;

  const SharedTableSpec& Spec(size_t table) const;
  const SharedRoot& Root(int place) const;
  std::string Copy(const SharedBlob& blob) const;

  const std::shared_ptr<SharedMemory> memory_;
  const BucketHasher hasher_;
  const Kernels* const kernels_ = &ActiveKernels();
  const int first_, count_;
  std::atomic<uint64_t> checked_{0};  // roots up to this sequence number have been checked
  std::mutex mutex_;
  std::condition_variable left_;
  std::vector<int> free_;
  std::array<std::atomic<const SharedRoot*>, kSharedReaders> roots_ = {};  // by place
};

}  // namespace msrec
