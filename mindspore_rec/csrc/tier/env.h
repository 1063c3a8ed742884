// SPDX-License-Identifier: Apache-2.0
//
// Env: all file access of the tiers, so that tests can put faults in its way. Env::Posix() is the
// real one. Every failure is an IoError that says what was tried, on which path, and why not.
// An Env may be used by any thread; a File may be read by any number of threads, and written by one
// at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace msrec {

// The system refused. code().value() is errno.
class IoError : public std::system_error {
 public:
  IoError(int error, const std::string& what, std::string path);
  const std::string& action() const { return action_; }  // `what` as it was given
  const std::string& path() const { return path_; }

 private:
  std::string action_;
  std::string path_;
};

// Data that were read differ from those that were written.
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

  // With direct access offset, n and data must be multiples of 4096.

  // Returns the number of bytes read: less than n only at the end of the file.
  virtual size_t Read(uint64_t offset, size_t n, char* data) const = 0;
  // Writes all n bytes; after an IoError any part of them may be written.
  virtual void Write(uint64_t offset, size_t n, const char* data) = 0;
  // Reserves space and sets the file's size, so that writes below `size` cannot fail for want of
  // it.
  virtual void Allocate(uint64_t size) = 0;
  virtual void Truncate(uint64_t size) = 0;
  // When it returns, what was written survives power loss.
  virtual void Sync() = 0;
  virtual uint64_t Size() const = 0;
  // For reads past this interface (io_uring); -1: there must be none.
  virtual int descriptor() const { return -1; }

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

class FileLock {
 public:
  virtual ~FileLock() = default;
  // Throws IoError when the locked path is gone, or another file by now.
  virtual void Check() const = 0;
};

enum class OpenMode { kRead, kReadWrite, kCreate };  // kCreate: empty, whatever was there

class Env {
 public:
  static Env* Posix();
  virtual ~Env() = default;

  // direct: past the page cache (O_DIRECT).
  virtual std::unique_ptr<File> Open(const std::string& path, OpenMode mode, bool direct) = 0;
  virtual bool Exists(const std::string& path) = 0;
  // With its parents; those that exist are left alone. Those it has made survive power loss.
  virtual void CreateDirectory(const std::string& path) = 0;
  virtual std::vector<std::string> List(const std::string& directory) = 0;
  virtual void Rename(const std::string& from, const std::string& to) = 0;
  virtual void Remove(const std::string& path) = 0;
  // Makes creations, renames and removals in it survive power loss.
  virtual void SyncDirectory(const std::string& path) = 0;
  // Creates the file where exclusive. Throws IoError EBUSY when somebody else, in this process or
  // another, holds it exclusively, or holds it at all and exclusive is asked for. Ends with the
  // process: a forked child has no part in it, and can neither keep it nor give it up.
  virtual std::unique_ptr<FileLock> Lock(const std::string& path, bool exclusive) = 0;
};

}  // namespace msrec
