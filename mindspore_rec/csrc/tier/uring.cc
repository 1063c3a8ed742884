// SPDX-License-Identifier: Apache-2.0
#include "tier/uring.h"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#endif

namespace msrec {
namespace {

int Setup(unsigned entries, io_uring_params* params) {
  return static_cast<int>(::syscall(__NR_io_uring_setup, entries, params));
}

// The rings are shared with the kernel. This process loads the kernel's stores with acquire order,
// and makes its own stores with release order.
uint32_t LoadAcquire(const uint32_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
void Store(uint32_t* p, uint32_t value) { __atomic_store_n(p, value, __ATOMIC_RELEASE); }

}  // namespace

std::unique_ptr<Uring> Uring::TryCreate(unsigned depth, size_t buffer_bytes) {
  io_uring_params params{};
  // Completions do not interrupt this thread. Completions are processed when the thread enters the
  // kernel.
  params.flags = IORING_SETUP_COOP_TASKRUN;
  int fd = Setup(depth, &params);
  if (fd < 0 && errno == EINVAL) {
    params = io_uring_params{};
    fd = Setup(depth, &params);
  }
  if (fd < 0) return nullptr;
  std::unique_ptr<Uring> ring(new Uring(fd, depth, buffer_bytes));
  if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0) return nullptr;  // before 5.4

  ring->rings_bytes_ =
      std::max<size_t>(params.sq_off.array + params.sq_entries * sizeof(uint32_t),
                       params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
  void* rings = ::mmap(nullptr, ring->rings_bytes_, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQ_RING);
  if (rings == MAP_FAILED) return nullptr;
  ring->rings_ = rings;
  ring->sqes_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
  void* sqes = ::mmap(nullptr, ring->sqes_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                      fd, IORING_OFF_SQES);
  if (sqes == MAP_FAILED) return nullptr;
  ring->sqes_ = static_cast<io_uring_sqe*>(sqes);

  char* base = static_cast<char*>(rings);
  const auto word = [base](uint32_t offset) { return reinterpret_cast<uint32_t*>(base + offset); };
  ring->sq_tail_ = word(params.sq_off.tail);
  ring->sq_mask_ = *word(params.sq_off.ring_mask);
  ring->cq_head_ = word(params.cq_off.head);
  ring->cq_tail_ = word(params.cq_off.tail);
  ring->cq_mask_ = *word(params.cq_off.ring_mask);
  ring->cqes_ = reinterpret_cast<io_uring_cqe*>(base + params.cq_off.cqes);
  // Position i of the queue always refers to entry i.
  for (uint32_t i = 0; i < params.sq_entries; ++i) word(params.sq_off.array)[i] = i;

  // The buffers' pages are pinned once, so a read need not look up the pages. If the system's
  // limits do not allow pinned pages, reads work without pinned pages.
  const iovec memory{ring->memory_.data(), ring->memory_.size()};
  ring->registered_ =
      ::syscall(__NR_io_uring_register, fd, IORING_REGISTER_BUFFERS, &memory, 1) == 0;
  return ring;
}

Uring::Uring(int fd, unsigned depth, size_t buffer_bytes)
    : fd_(fd), depth_(depth), buffer_bytes_(buffer_bytes), memory_(depth * buffer_bytes) {}

Uring::~Uring() {
  if (sqes_ != nullptr) ::munmap(sqes_, sqes_bytes_);
  if (rings_ != nullptr) ::munmap(rings_, rings_bytes_);
  ::close(fd_);
}

void Uring::QueueRead(int fd, uint64_t offset, uint32_t bytes, unsigned i) {
  const uint32_t tail = *sq_tail_;  // only this thread stores it
  io_uring_sqe* sqe = &sqes_[tail & sq_mask_];
  std::memset(sqe, 0, sizeof *sqe);
  sqe->opcode = registered_ ? IORING_OP_READ_FIXED : IORING_OP_READ;
  sqe->fd = fd;
  sqe->off = offset;
  sqe->addr = reinterpret_cast<uint64_t>(buffer(i));
  sqe->len = bytes;
  sqe->user_data = i;
  Store(sq_tail_, tail + 1);
  ++queued_;
}

int Uring::Submit(unsigned wait_for) {
  while (queued_ > 0 || wait_for > 0) {
    const long taken = ::syscall(__NR_io_uring_enter, fd_, queued_, wait_for,
                                 wait_for > 0 ? IORING_ENTER_GETEVENTS : 0, nullptr, 0);
    if (taken < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    queued_ -= static_cast<unsigned>(taken);
    if (queued_ == 0) break;
  }
  return 0;
}

bool Uring::Complete(unsigned* i, int32_t* result) {
  const uint32_t head = *cq_head_;  // only this thread stores it
  if (head == LoadAcquire(cq_tail_)) return false;
  const io_uring_cqe& cqe = cqes_[head & cq_mask_];
  *i = static_cast<unsigned>(cqe.user_data);
  *result = cqe.res;
  Store(cq_head_, head + 1);
  return true;
}

}  // namespace msrec
