// SPDX-License-Identifier: Apache-2.0
//
// SharedReader: looks rows up in a SharedMemory that another process changes. A thread enters the
// newest root and reads from it until it leaves: all its lookups are of the same state. Readers
// never wait for the writer; the writer waits for readers of old roots.
//
// Any number of threads. Throws std::invalid_argument for bad arguments; SharedDamaged.
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
  // Reads with this process's places for readers: `count` of the memory's places, from `first` on.
  SharedReader(std::shared_ptr<SharedMemory> memory, int first, int count);

  // Whether a state is published.
  bool Ready() const { return memory_->control().sequence.load() != 0; }

  // Enter the newest root, at a free place; wait until one is free. Returns the place. Throws
  // std::runtime_error where there is no state yet.
  int Enter();
  void Leave(int place);

  // Throws where there is no such table.
  int32_t Dim(size_t table) const { return Spec(table).dim; }

  // ---- at a place that Enter returned

  // Sequence of the root that first had this state.
  uint64_t State(int place) const { return Root(place).state; }
  uint64_t Sequence(int place) const { return Root(place).sequence; }
  std::string Blob(int place) const { return Copy(Root(place).blob); }
  std::string Status(int place) const { return Copy(Root(place).status); }
  uint64_t Rows(int place, size_t table) const;
  // Call fn(key, digest) with each row (rows/row_digest.h) of a part of the table, in no order. A
  // table has kSharedParts parts; the digest is of the bytes of Lookup's row, or of its scale,
  // offset and codes.
  void Digests(int place, size_t table, size_t part,
               const std::function<void(int64_t, uint64_t)>& fn) const;
  // Write the rows of ids to out, [ids.size, dim], ids.stride rows apart: zeros for ids that the
  // filter drops, `unknown` for those without a row. `name` begins messages.
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
