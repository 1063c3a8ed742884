// SPDX-License-Identifier: Apache-2.0
//
// SharedMemory maps into this process the memory that shared_layout.h describes. The process that
// creates the memory chooses the tables and their settings. Other processes inherit the file
// descriptor and map the same file.
//
// All methods are thread safe. Methods throw std::invalid_argument for bad arguments,
// std::system_error for errors of the system, and std::bad_alloc if memory is short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "readers/shared_layout.h"
#include "rows/quantised_row.h"

namespace msrec {

// Thrown if the memory's contents are inconsistent and must not be used.
struct SharedDamaged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class SharedMemory {
 public:
  enum class Access { kRead, kWrite };

  // Lay out an empty file, such as a memfd. The rows of each table have an address space of
  // `most_bytes` bytes. All other data have one further address space of `most_bytes` bytes. Create
  // rounds `most_bytes` up to huge pages, and reduces `most_bytes` if the file would exceed 2^46
  // bytes. The file takes memory only for written pages. If the file allows sealing
  // (MFD_ALLOW_SEALING), its length is sealed. Create sets rows_offset and rows_bytes in the file's
  // copy of the specs. Requires: no other process has mapped the file yet.
  static void Create(int fd, const std::vector<SharedTableSpec>& specs, uint64_t most_bytes);
  // Return whether Create has laid out the file.
  static bool IsCreated(int fd);

  // Map a file that Create has laid out. With kWrite, the caller must keep the descriptor `fd`
  // open. With kRead, the caller may close the descriptor, unless BytesHeld is called later. Throws
  // SharedDamaged if the file's description is inconsistent. The description is read only once, so
  // later changes by another process have no effect.
  SharedMemory(int fd, Access access);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  SharedControl& control() const { return *control_; }
  uint64_t tables() const { return specs_.size(); }
  const SharedTableSpec& spec(size_t table) const { return specs_[table]; }
  uint64_t arena_offset() const { return arena_offset_; }
  uint64_t arena_bytes() const { return arena_bytes_; }
  // Layout of a table's rows. If the rows are float32, only header() of the returned layout is
  // valid.
  QuantisedLayout layout(size_t table) const {
    const SharedTableSpec& of = spec(table);
    return {of.dim, of.bits, true, of.aged()};
  }
  // Distance in bytes from one row to the next.
  size_t stride(size_t table) const {
    const QuantisedLayout row = layout(table);
    return row.bits == 32 ? row.header() + sizeof(float) * static_cast<size_t>(row.dim)
                          : row.stride();
  }

  template <typename T>
  T* At(uint64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  char* Row(const SharedTableSpec& spec, size_t stride, uint64_t slot) const {
    return base_ + spec.rows_offset + slot * stride;
  }

  // Throw SharedDamaged unless there is a root at `offset` and all offsets in the root are within
  // the memory.
  void CheckRoot(uint64_t offset) const;

  // ---- for the process that writes

  // Allocate memory for a range, or throw std::bad_alloc. Writing to an allocated range cannot
  // raise SIGBUS.
  void Populate(uint64_t offset, uint64_t bytes) const;
  // Release to the operating system all pages that are entirely inside a range. A released page
  // contains zeros. If the system does not accept the pages, the contents of the pages do not
  // change.
  void Release(uint64_t offset, uint64_t bytes) const;

  // ---- for any process

  // Clear `count` reader places, beginning with place `first`. Call ClearReaders after the process
  // of these readers has ended, so that the writer does not wait for these readers.
  void ClearReaders(int first, int count) const;
  // Return the bytes of memory that the file uses.
  uint64_t BytesHeld() const;

 private:
  // Read the constant part of the description. Return an error message; "" if the description is
  // valid.
  std::string ReadDescription();

  int fd_;
  char* base_ = nullptr;
  uint64_t bytes_ = 0;
  SharedControl* control_ = nullptr;
  uint64_t arena_offset_ = 0, arena_bytes_ = 0;
  std::vector<SharedTableSpec> specs_;
};

}  // namespace msrec
