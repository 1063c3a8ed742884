// SPDX-License-Identifier: Apache-2.0
#include "readers/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <system_error>

#include "rows/row_layout.h"
#include "util/bytes.h"
#include "util/hash.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace msrec {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 46;  // size limit of the file: half of the address
                                                    // space
constexpr int64_t kMostClock = int64_t{1} << 62;
constexpr uint64_t kLeft = 64 << 20;  // bytes that stay available to other programs

[[noreturn]] void Fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), std::string("shared memory: ") + what);
}

// Return whether the ages at the time `at` can be computed without an overflow of int64.
bool IsClock(int64_t at) { return at >= -kMostClock && at <= kMostClock; }

// Return an error message for a table's settings; "" if the settings are valid.
std::string ErrorOf(const SharedTableSpec& spec) {
  if (spec.dim < 1 || spec.dim > kMaxDim) {
    return "dim must be in [1, 8192], got " + std::to_string(spec.dim);
  }
  if (spec.bits != 32 && spec.bits != 8 && spec.bits != 4) {
    return "bits must be 32, 8 or 4, got " + std::to_string(spec.bits);
  }
  if (spec.vocabulary < 0 || spec.vocabulary >= std::numeric_limits<uint32_t>::max()) {
    return "vocabulary must be in [0, 2^32 - 2], got " + std::to_string(spec.vocabulary);
  }
  return "";
}

uint64_t FileBytes(int fd) {
  struct stat at = {};
  if (fstat(fd, &at) != 0) Fail("fstat");
  return static_cast<uint64_t>(at.st_size);
}

// Return the number of bytes of memory that the system reports as available. If the system reports
// no number, return the largest possible number.
uint64_t AvailableBytes() {
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return std::numeric_limits<uint64_t>::max();
  char line[256];
  unsigned long long kib = 0;
  bool found = false;
  while (!found && std::fgets(line, sizeof(line), file) != nullptr) {
    found = std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1;
  }
  std::fclose(file);
  return found ? uint64_t{kib} * 1024 : std::numeric_limits<uint64_t>::max();
}

uint64_t NewHashSeed() {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == sizeof(seed)) return seed;
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return Mix64(static_cast<uint64_t>(now) ^ static_cast<uint64_t>(getpid()) << 40);
}

}  // namespace

void SharedMemory::Create(int fd, const std::vector<SharedTableSpec>& specs, uint64_t most_bytes) {
  if (specs.size() > kSharedTables) {
    throw std::invalid_argument("there must be at most " + std::to_string(kSharedTables) +
                                " tables, got " + std::to_string(specs.size()));
  }
  for (const SharedTableSpec& spec : specs) {
    const std::string error = ErrorOf(spec);
    if (!error.empty()) throw std::invalid_argument(error);
  }
  const uint64_t most =
      std::max(kHugePage, std::min(RoundUp(most_bytes, kHugePage),
                                   kMostBytes / (specs.size() + 1) / kHugePage * kHugePage));
  const uint64_t arena = RoundUp(kSharedControlBytes, kHugePage);
  const uint64_t bytes = arena + most * (specs.size() + 1);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) Fail("ftruncate");
  // Seal the length. If the file were shortened, an access to a mapped page would raise SIGBUS.
  // Some files cannot be sealed, so errors of fcntl are ignored.
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  void* mapped = mmap(nullptr, kSharedControlBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) Fail("mmap");
  if (fallocate(fd, 0, 0, static_cast<off_t>(kSharedControlBytes)) != 0) {
    const int error = errno;
    munmap(mapped, kSharedControlBytes);
    errno = error;
    Fail("fallocate");
  }
  auto* control = static_cast<SharedControl*>(mapped);
  control->bytes = bytes;
  control->arena_offset = arena;
  control->arena_bytes = most;
  control->hash_seed = NewHashSeed();
  control->tables = specs.size();
  for (size_t i = 0; i < specs.size(); ++i) {
    control->specs[i] = specs[i];
    control->specs[i].rows_offset = arena + most * (i + 1);
    control->specs[i].rows_bytes = most;
  }
  control->magic.store(kSharedMagic);
  munmap(mapped, kSharedControlBytes);
}

bool SharedMemory::IsCreated(int fd) {
  if (FileBytes(fd) < kSharedControlBytes) return false;
  uint64_t magic = 0;
  return pread(fd, &magic, sizeof(magic), 0) == sizeof(magic) && magic == kSharedMagic;
}

SharedMemory::SharedMemory(int fd, Access access) : fd_(fd), bytes_(FileBytes(fd)) {
  if (!IsCreated(fd)) throw SharedDamaged("the shared memory is not laid out");
  const int rights = access == Access::kWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  void* mapped = mmap(nullptr, bytes_, rights, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (mapped == MAP_FAILED) Fail("mmap");
  base_ = static_cast<char*>(mapped);
  // A reader stores the sequence number of its root in the control pages, so even a reader maps the
  // control pages as writable.
  void* control = mmap(nullptr, kSharedControlBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (control == MAP_FAILED) {
    const int error = errno;
    munmap(base_, bytes_);
    errno = error;
    Fail("mmap");
  }
  control_ = static_cast<SharedControl*>(control);
  const auto refuse = [&] {
    munmap(control_, kSharedControlBytes);
    munmap(base_, bytes_);
  };
  std::string error;
  try {
    error = ReadDescription();
  } catch (...) {
    refuse();
    throw;
  }
  if (!error.empty()) {
    refuse();
    throw SharedDamaged("the shared memory is damaged: " + error);
  }
  // The two calls of madvise only give hints to the system, so errors are ignored.
  madvise(base_, bytes_, MADV_DONTDUMP);
  madvise(base_ + arena_offset_, bytes_ - arena_offset_, MADV_HUGEPAGE);
}

std::string SharedMemory::ReadDescription() {
  const SharedControl& control = *control_;
  const uint64_t bytes = control.bytes, tables = control.tables;
  if (bytes != bytes_) {
    return "bytes must be " + std::to_string(bytes_) + ", those of the file, got " +
           std::to_string(bytes);
  }
  if (tables > kSharedTables) {
    return "tables must be at most " + std::to_string(kSharedTables) + ", got " +
           std::to_string(tables);
  }
  // Checks that a part of `size` bytes at `offset` does not overlap the previous part.
  uint64_t end = kSharedControlBytes;
  const auto place = [&](const std::string& what, uint64_t offset, uint64_t size) -> std::string {
    if (offset % kSharedPage != 0 || offset < end || offset > bytes_) {
      return what + "_offset must be a multiple of " + std::to_string(kSharedPage) + " in [" +
             std::to_string(end) + ", " + std::to_string(bytes_) + "], got " +
             std::to_string(offset);
    }
    if (size > bytes_ - offset) {
      return what + "_bytes must be at most " + std::to_string(bytes_ - offset) + ", got " +
             std::to_string(size);
    }
    end = offset + size;
    return "";
  };
  arena_offset_ = control.arena_offset;
  arena_bytes_ = control.arena_bytes;
  std::string error = place("arena", arena_offset_, arena_bytes_);
  if (!error.empty()) return error;
  specs_.assign(control.specs, control.specs + tables);
  for (size_t i = 0; i < specs_.size(); ++i) {
    error = ErrorOf(specs_[i]);
    if (error.empty()) error = place("rows", specs_[i].rows_offset, specs_[i].rows_bytes);
    if (!error.empty()) return "of table " + std::to_string(i) + ", " + error;
  }
  return "";
}

SharedMemory::~SharedMemory() {
  munmap(control_, kSharedControlBytes);
  munmap(base_, bytes_);
}

void SharedMemory::CheckRoot(uint64_t offset) const {
  const uint64_t end = arena_offset_ + arena_bytes_;
  const auto inside = [&](uint64_t at, uint64_t count, uint64_t size) {
    return at % 64 == 0 && at >= arena_offset_ && at <= end && count <= (end - at) / size;
  };
  bool fine = inside(offset, 1, SharedRoot::Bytes(tables()));
  const auto& root = *At<SharedRoot>(fine ? offset : 0);
  fine = fine && root.magic == kSharedMagic && root.tables == tables() &&
         inside(root.blob.offset, root.blob.bytes, 1) &&
         inside(root.status.offset, root.status.bytes, 1);
  for (size_t t = 0; fine && t < tables(); ++t) {
    const SharedTableRoot& table = root.table()[t];
    const uint64_t entries = table.overlay_entries;
    fine = table.end <= spec(t).rows_bytes / stride(t) && IsClock(table.ages_at_step) &&
           IsClock(table.ages_at_time) && (entries & (entries - 1)) == 0 &&
           (entries == 0 || inside(table.overlay, entries, sizeof(SharedChange)));
    for (const SharedIndexPart& part : table.parts) {
      const bool none = part.offset == 0 && part.buckets == 0;
      fine = fine && (none || inside(part.offset, part.buckets, sizeof(SharedBucket)));
    }
  }
  if (!fine) throw SharedDamaged("the shared memory is damaged: its root cannot be");
}

void SharedMemory::Populate(uint64_t offset, uint64_t bytes) const {
  const uint64_t first = offset / kSharedPage * kSharedPage;
  const uint64_t length = RoundUp(offset + bytes, kSharedPage) - first;
  // Check the available memory first. Without this check, the system could run out of memory and
  // kill a process.
  if (length >= kHugePage / 8 && length + kLeft > AvailableBytes()) throw std::bad_alloc();
  if (madvise(base_ + first, length, MADV_POPULATE_WRITE) == 0) return;
  if (errno == EINVAL &&
      fallocate(fd_, 0, static_cast<off_t>(first), static_cast<off_t>(length)) == 0) {
    return;  // MADV_POPULATE_WRITE is not supported: an older kernel, or a sanitizer
  }
  throw std::bad_alloc();
}

void SharedMemory::Release(uint64_t offset, uint64_t bytes) const {
  const uint64_t first = RoundUp(offset, kSharedPage);
  const uint64_t end = (offset + bytes) / kSharedPage * kSharedPage;
  if (first >= end) return;
  // If the system refuses to release the memory, the memory stays allocated and is used again
  // later.
  (void)fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                  static_cast<off_t>(end - first));
}

void SharedMemory::ClearReaders(int first, int count) const {
  if (first < 0 || count < 0 || first > kSharedReaders - count) {
    throw std::invalid_argument("readers must be in [0, " + std::to_string(kSharedReaders) + ")");
  }
  for (int i = first; i < first + count; ++i) control_->readers[i].sequence.store(0);
}

uint64_t SharedMemory::BytesHeld() const {
  struct stat at = {};
  if (fstat(fd_, &at) != 0) Fail("fstat");
  return static_cast<uint64_t>(at.st_blocks) * 512;
}

}  // namespace msrec
