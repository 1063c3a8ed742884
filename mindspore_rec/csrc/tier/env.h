// SPDX-License-Identifier: Apache-2.0
//
// Env: the interface for all file access of the tiers. Tests replace the Env to inject faults.
// Env::Posix() accesses real files. Every failure is reported as an IoError that names the
// operation, the path and the reason. Any thread may use an Env. Any number of threads may read a
// File, but only one thread at a time may write the File.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace msrec {

// A system call failed. The errno is code().value().
class IoError : public std::system_error {
 public:
  IoError(int error, const std::string& what, std::string path);
  const std::string& action() const { return action_; }  // `what` as it was given
  const std::string& path() const { return path_; }

 private:
  std::string action_;
  std::string path_;
};

// Thrown if data that were read differ from the data that were written.
class Corruption : public std::runtime_error {
 public:
  Corruption(const std::string& what, std::string path, uint64_t offset);
  const std::string& problem() const { return problem_; }  // `what` as it was given
  const std::string& path() const { return path_; }
  uint64_t offset() const { return offset_; }

 private:
  std::string problem_;
  std::string path_;
  uint64_t offset_;
};

class File {
 public:
  explicit File(std::string path) : path_(std::move(path)) {}
  virtual ~File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // If the file was opened with `direct`, offset, n and data must be multiples of 4096.

  // Returns the number of bytes read, which is less than n only at the end of the file.
  virtual size_t Read(uint64_t offset, size_t n, char* data) const = 0;
  // Writes all n bytes. After an IoError, any part of the bytes may have been written.
  virtual void Write(uint64_t offset, size_t n, const char* data) = 0;
  // Reserves space and extends the file to at least `size` bytes, so that writes below `size`
  // cannot fail because of missing space.
  virtual void Allocate(uint64_t size) = 0;
  virtual void Truncate(uint64_t size) = 0;
  // Makes all earlier writes survive power loss.
  virtual void Sync() = 0;
  virtual uint64_t Size() const = 0;
  // Returns the descriptor for reads that bypass this interface (io_uring). The value -1 means that
  // reads must not bypass this interface.
  virtual int descriptor() const { return -1; }

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

class FileLock {
 public:
  virtual ~FileLock() = default;
  // Throws IoError if the locked path no longer exists, or now names a different file than the
  // locked file.
  virtual void Check() const = 0;
};

enum class OpenMode { kRead, kReadWrite, kCreate };  // kCreate: empty, whatever was there

class Env {
 public:
  static Env* Posix();
  virtual ~Env() = default;

  // If `direct` is true, reads and writes bypass the page cache (O_DIRECT).
  virtual std::unique_ptr<File> Open(const std::string& path, OpenMode mode, bool direct) = 0;
  virtual bool Exists(const std::string& path) = 0;
  // Creates the directory and its missing parents. New directories survive power loss.
  virtual void CreateDirectory(const std::string& path) = 0;
  virtual std::vector<std::string> List(const std::string& directory) = 0;
  virtual void Rename(const std::string& from, const std::string& to) = 0;
  virtual void Remove(const std::string& path) = 0;
  // Makes creations, renames and removals in this directory survive power loss.
  virtual void SyncDirectory(const std::string& path) = 0;
  // If `exclusive` is true, creates the file if necessary. Throws IoError EBUSY if any process,
  // including this process, holds the lock exclusively. If `exclusive` is true, also throws EBUSY
  // if a process holds a shared lock. The lock ends when this process ends. A forked child does not
  // share the lock, and can neither keep nor release the lock.
  virtual std::unique_ptr<FileLock> Lock(const std::string& path, bool exclusive) = 0;
};

}  // namespace msrec
