// SPDX-License-Identifier: Apache-2.0
//
// SharedReader: looks up rows in a SharedMemory that another process changes. A thread enters the
// newest root and reads from it until it leaves, so all its lookups see the same state. Readers
// never wait for the writer, but the writer waits for readers of old roots.
//
// Any number of threads may call. Throws std::invalid_argument for bad arguments, and
// SharedDamaged.
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
  // Reads with this process's reader places: `count` places of the memory, beginning at `first`.
  SharedReader(std::shared_ptr<SharedMemory> memory, int first, int count);

  // Whether a state has been published.
  bool Ready() const { return memory_->control().sequence.load() != 0; }

  // Enter the newest root at a free place; wait until a place is free. Returns the place. Throws
  // std::runtime_error if there is no state yet.
  int Enter();
  void Leave(int place);

  // Throws if there is no such table.
  int32_t Dim(size_t table) const { return Spec(table).dim; }

  // ---- The methods below take a place that Enter returned.

  // Sequence of the first root with this state.
  uint64_t State(int place) const { return Root(place).state; }
  uint64_t Sequence(int place) const { return Root(place).sequence; }
  std::string Blob(int place) const { return Copy(Root(place).blob); }
  std::string Status(int place) const { return Copy(Root(place).status); }
  uint64_t Rows(int place, size_t table) const;
  // Call fn(key, digest) for each row (rows/row_digest.h) of a part of the table, in no fixed
  // order. A table has kSharedParts parts. The digest covers the bytes of Lookup's row, or the
  // row's scale, offset and codes.
  void Digests(int place, size_t table, size_t part,
               const std::function<void(int64_t, uint64_t)>& fn) const;
  // Write the rows of ids to out [ids.size, dim]; output rows are ids.stride rows apart. Ids that
  // the filter drops read zeros, and ids without a row read `unknown`. `name` begins messages.
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
  std::atomic<uint64_t> checked_{0};  // roots up to it are right
  std::mutex mutex_;
  std::condition_variable left_;
  std::vector<int> free_;
  std::array<std::atomic<const SharedRoot*>, kSharedReaders> roots_ = {};  // by place
};

}  // namespace msrec
