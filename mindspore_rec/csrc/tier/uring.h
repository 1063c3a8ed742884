// SPDX-License-Identifier: Apache-2.0
//
// Uring: an io_uring for reads into its own buffers, by direct system calls (Axboe 2019, "Efficient
// IO with io_uring"). Only one thread at a time may use a Uring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tier/aligned_buffer.h"

struct io_uring_sqe;
struct io_uring_cqe;

namespace msrec {

class Uring {
 public:
  // Returns null if the system has no io_uring or does not allow its use.
  static std::unique_ptr<Uring> TryCreate(unsigned depth, size_t buffer_bytes);
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  unsigned depth() const { return depth_; }
  char* buffer(unsigned i) const { return memory_.data() + i * buffer_bytes_; }
  size_t buffer_bytes() const { return buffer_bytes_; }

  // Queues a read into buffer i, which no other read may be using. Submit passes the read to the
  // kernel.
  void QueueRead(int fd, uint64_t offset, uint32_t bytes, unsigned i);
  // Submits the queued reads and waits until there are at least `wait_for` completions. Returns 0
  // for success, or the value of errno.
  int Submit(unsigned wait_for);
  // Removes one completion, and sets `i` to the read's buffer and `result` to the result of pread
  // (negative: -errno). Returns false if there is no completion.
  bool Complete(unsigned* i, int32_t* result);

 private:
  Uring(int fd, unsigned depth, size_t buffer_bytes);

  const int fd_;
  const unsigned depth_;
  const size_t buffer_bytes_;
  AlignedBuffer memory_;
  bool registered_ = false;

  void* rings_ = nullptr;
  size_t rings_bytes_ = 0;
  io_uring_sqe* sqes_ = nullptr;
  size_t sqes_bytes_ = 0;
  uint32_t* sq_tail_ = nullptr;
  uint32_t* cq_head_ = nullptr;
  uint32_t* cq_tail_ = nullptr;
  uint32_t sq_mask_ = 0;
  uint32_t cq_mask_ = 0;
  io_uring_cqe* cqes_ = nullptr;
  unsigned queued_ = 0;
};

}  // namespace msrec
