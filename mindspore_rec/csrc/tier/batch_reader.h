// SPDX-License-Identifier: Apache-2.0
//
// BatchReader: reads many pieces of files at once. The reads use io_uring if the system has it and
// all files have descriptors. Without io_uring, a few threads call File::Read. Any number of
// threads may call Run.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tier/env.h"
#include "tier/uring.h"

namespace msrec {

// Whole file blocks that are read together.
struct Extent {
  const File* file;
  uint64_t offset;
  uint32_t bytes;
  uint32_t first, last;  // the caller's: which of its requests lie in here
};

class BatchReader {
 public:
  // No extent may be longer than max_extent. `depth` is the maximum number of reads that one call
  // of Run has in flight.
  BatchReader(size_t max_extent, unsigned depth, bool use_io_uring);

  // Calls done(extent, data, bytes) once for each extent, in no fixed order, possibly on several
  // threads at once. `bytes` is smaller than requested only at the end of a file. Throws the first
  // IoError, or the first exception thrown by `done`. When Run throws, no read is in flight any
  // more, except if io_uring_enter has failed. After a failure of io_uring_enter, the buffers of
  // the reads in flight are never freed.
  using Done = std::function<void(const Extent& extent, const char* data, size_t bytes)>;
  void Run(const std::vector<Extent>& extents, const Done& done);

  size_t max_extent() const { return max_extent_; }
  const char* name() const { return use_io_uring_ ? "io_uring" : "pread"; }
  size_t buffer_bytes() const { return rings_made_ * depth_ * max_extent_; }

 private:
  void RunUring(std::unique_ptr<Uring>* owner, const std::vector<Extent>& extents,
                const Done& done) const;
  void RunThreads(const std::vector<Extent>& extents, const Done& done) const;
  std::unique_ptr<Uring> TakeRing();

  const size_t max_extent_;
  const unsigned depth_;
  std::atomic<bool> use_io_uring_;
  std::atomic<size_t> rings_made_{0};
  std::mutex mutex_;  // guards rings_
  std::vector<std::unique_ptr<Uring>> rings_;
};

}  // namespace msrec
