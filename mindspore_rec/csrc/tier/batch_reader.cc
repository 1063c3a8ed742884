// SPDX-License-Identifier: Apache-2.0
#include "tier/batch_reader.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <thread>

namespace msrec {
namespace {

constexpr size_t kThreads = 8;
// Completed reads are fetched in groups of depth / kFetchShare. Submitting reads in groups needs
// fewer system calls than submitting single reads, and still keeps enough reads in flight.
constexpr unsigned kFetchShare = 4;

}  // namespace

BatchReader::BatchReader(size_t max_extent, unsigned depth, bool use_io_uring)
    : max_extent_(max_extent), depth_(depth), use_io_uring_(use_io_uring) {
  if (!use_io_uring) return;
  std::unique_ptr<Uring> ring = TakeRing();  // whether there is one at all
  if (ring != nullptr) rings_.push_back(std::move(ring));
}

std::unique_ptr<Uring> BatchReader::TakeRing() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!rings_.empty()) {
      std::unique_ptr<Uring> ring = std::move(rings_.back());
      rings_.pop_back();
      return ring;
    }
  }
  std::unique_ptr<Uring> ring = Uring::TryCreate(depth_, max_extent_);
  if (ring != nullptr) {
    ++rings_made_;
  } else if (rings_made_ == 0) {
    use_io_uring_ = false;
  }
  return ring;
}

void BatchReader::Run(const std::vector<Extent>& extents, const Done& done) {
  if (extents.empty()) return;
  const bool bare = std::all_of(extents.begin(), extents.end(),
                                [](const Extent& e) { return e.file->descriptor() >= 0; });
  std::unique_ptr<Uring> ring = use_io_uring_ && bare ? TakeRing() : nullptr;
  if (ring == nullptr) {
    RunThreads(extents, done);
    return;
  }
  RunUring(&ring, extents, done);  // when it throws, the ring goes too
  const std::lock_guard<std::mutex> lock(mutex_);
  rings_.push_back(std::move(ring));
}

void BatchReader::RunUring(std::unique_ptr<Uring>* owner, const std::vector<Extent>& extents,
                           const Done& done) const {
  Uring* ring = owner->get();
  std::vector<unsigned> free(ring->depth());
  for (unsigned i = 0; i < ring->depth(); ++i) free[i] = i;
  std::vector<size_t> extent_of(ring->depth());
  std::exception_ptr error;
  size_t next = 0;
  unsigned under_way = 0;
  while (under_way > 0 || (next < extents.size() && !error)) {
    while (next < extents.size() && !free.empty() && !error) {
      const unsigned i = free.back();
      free.pop_back();
      extent_of[i] = next;
      const Extent& extent = extents[next++];
      ring->QueueRead(extent.file->descriptor(), extent.offset, extent.bytes, i);
      ++under_way;
    }
    const bool more = next < extents.size() && !error;
    const unsigned want = more ? std::max(1u, ring->depth() / kFetchShare) : under_way;
    // After an error, also wait for all reads under way, because the kernel may still write to the
    // buffers.
    const int failed = ring->Submit(std::min({want, under_way, ring->depth() / kFetchShare + 1}));
    if (failed != 0 && failed != EAGAIN && failed != EBUSY) {
      // The kernel may still write to the buffers, so the buffers are never freed.
      static_cast<void>(owner->release());
      throw IoError(failed, "io_uring_enter failed reading", extents[0].file->path());
    }
    unsigned i;
    int32_t result;
    while (ring->Complete(&i, &result)) {
      --under_way;
      free.push_back(i);
      if (error) continue;
      const Extent& extent = extents[extent_of[i]];
      try {
        size_t bytes = result < 0 ? 0 : static_cast<size_t>(result);
        if (bytes != extent.bytes) {
          // The read was interrupted, reached the file's end, or failed. Read the extent again with
          // File::Read, which completes the read or throws the error.
          bytes = extent.file->Read(extent.offset, extent.bytes, ring->buffer(i));
        }
        done(extent, ring->buffer(i), bytes);
      } catch (...) {
        error = std::current_exception();
      }
    }
  }
  if (error) std::rethrow_exception(error);
}

void BatchReader::RunThreads(const std::vector<Extent>& extents, const Done& done) const {
  std::atomic<size_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      AlignedBuffer buffer(max_extent_);
      for (size_t i; (i = next.fetch_add(1)) < extents.size();) {
        const Extent& extent = extents[i];
        done(extent, buffer.data(), extent.file->Read(extent.offset, extent.bytes, buffer.data()));
      }
    } catch (...) {
      next = extents.size();
      const std::lock_guard<std::mutex> lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  try {
    for (size_t t = 1; t < std::min(kThreads, (extents.size() + 3) / 4); ++t) {
      threads.emplace_back(work);
    }
  } catch (const std::exception&) {  // the system's limits, or memory
    // Continue with fewer threads.
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace msrec
