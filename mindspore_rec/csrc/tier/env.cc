// SPDX-License-Identifier: Apache-2.0
#include "tier/env.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <mutex>
#include <new>

namespace msrec {

IoError::IoError(int error, const std::string& what, std::string path)
    : std::system_error(error, std::generic_category(), what + " " + path),
      action_(what),
      path_(std::move(path)) {}

Corruption::Corruption(const std::string& what, std::string path, uint64_t offset)
    : std::runtime_error(path + " is damaged at byte " + std::to_string(offset) + ": " + what),
      problem_(what),
      path_(std::move(path)),
      offset_(offset) {}

namespace {

class PosixFile : public File {
 public:
  PosixFile(int fd, const std::string& path) : File(path), fd_(fd) {}
  ~PosixFile() override { ::close(fd_); }

  size_t Read(uint64_t offset, size_t n, char* data) const override {
    size_t done = 0;
    while (done < n) {
      const ssize_t got = ::pread(fd_, data + done, n - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw IoError(errno, "cannot read", path());
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

  void Write(uint64_t offset, size_t n, const char* data) override {
    size_t done = 0;
    while (done < n) {
      const ssize_t put = ::pwrite(fd_, data + done, n - done, static_cast<off_t>(offset + done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) throw IoError(errno, "cannot write", path());
      if (put == 0) throw IoError(EIO, "nothing could be written to", path());
      done += static_cast<size_t>(put);
    }
  }

  void Allocate(uint64_t size) override {
    int error = 0;
    do {
      error = ::posix_fallocate(fd_, 0, static_cast<off_t>(size));
    } while (error == EINTR);
    if (error != 0) {
      throw IoError(error, "cannot set aside " + std::to_string(size) + " bytes for", path());
    }
  }

  void Truncate(uint64_t size) override {
    if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) {
      throw IoError(errno, "cannot truncate", path());
    }
  }

  void Sync() override {
    if (::fdatasync(fd_) != 0) throw IoError(errno, "cannot sync", path());
  }

  uint64_t Size() const override {
    struct stat status;
    if (::fstat(fd_, &status) != 0) throw IoError(errno, "cannot stat", path());
    return static_cast<uint64_t>(status.st_size);
  }

  int descriptor() const override { return fd_; }

 private:
  const int fd_;
};

class PosixLock : public FileLock {
 public:
  static std::unique_ptr<FileLock> Take(const std::string& path, bool exclusive) {
    Held& held = AllHeld();
    // A fork waits for the mutex of AllHeld(), so no child inherits a descriptor that is not
    // registered yet.
    const std::lock_guard<std::mutex> guard(held.mutex);
    const int fd =
        ::open(path.c_str(), O_CLOEXEC | (exclusive ? O_RDWR | O_CREAT : O_RDONLY), 0644);
    if (fd < 0) throw IoError(errno, "cannot open", path);
    std::unique_ptr<PosixLock> lock;
    try {
      lock.reset(new PosixLock(fd, path));
    } catch (...) {
      ::close(fd);
      throw;
    }
    if (::flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
      const int error = errno == EWOULDBLOCK ? EBUSY : errno;
      ::close(fd);
      lock->fd_ = -1;
      throw IoError(error, error == EBUSY ? "already open elsewhere:" : "cannot lock", path);
    }
    lock->next_ = held.first;
    held.first = lock.get();
    return lock;
  }

  ~PosixLock() override {
    if (fd_ < 0) return;  // not held, or in a child that was forked since
    Held& held = AllHeld();
    const std::lock_guard<std::mutex> guard(held.mutex);
    PosixLock** at = &held.first;
    while (*at != this) at = &(*at)->next_;
    *at = next_;
    // Unlock explicitly, because closing does not release the lock if a process that was forked
    // without the C library still has the file open.
    if (::getpid() == owner_) ::flock(fd_, LOCK_UN);
    ::close(fd_);
  }

  void Check() const override {
    struct stat held, there;
    if (::fstat(fd_, &held) != 0 || ::stat(path_.c_str(), &there) != 0) {
      throw IoError(errno, "no longer there:", path_);
    }
    if (held.st_ino != there.st_ino || held.st_dev != there.st_dev) {
      throw IoError(ESTALE, "replaced by another file:", path_);
    }
  }

 private:
  // A flock() lock belongs to the open file, which forked children share, so the lock would remain
  // until all children have ended. A child closes its copies of the descriptors first, so that the
  // lock ends with the parent; closing a copy does not unlock the parent's file. Locks of fcntl()
  // belong to a process. If any code in a process closed the file, the process would lose all its
  // fcntl() locks on the file. With fcntl() locks, two tables of one process could also open the
  // same directory at the same time.
  struct Held {
    std::mutex mutex;
    PosixLock* first = nullptr;
  };
  static Held& AllHeld() {
    static Held* const held = [] {
      if (::pthread_atfork([] { AllHeld().mutex.lock(); }, [] { AllHeld().mutex.unlock(); },
                           &CloseInChild) != 0) {
        throw std::bad_alloc();
      }
      return new Held;  // never destroyed: a fork may come late
    }();
    return *held;
  }
  static void CloseInChild() {
    Held& held = AllHeld();
    for (PosixLock* lock = held.first; lock != nullptr; lock = lock->next_) {
      ::close(lock->fd_);
      lock->fd_ = -1;
    }
    held.first = nullptr;
    held.mutex.unlock();
  }

  PosixLock(int fd, std::string path) : fd_(fd), owner_(::getpid()), path_(std::move(path)) {}

  int fd_;
  const pid_t owner_;
  const std::string path_;
  PosixLock* next_ = nullptr;
};

class PosixEnv : public Env {
 public:
  std::unique_ptr<File> Open(const std::string& path, OpenMode mode, bool direct) override {
    int flags = O_CLOEXEC | (mode == OpenMode::kRead ? O_RDONLY : O_RDWR);
    if (mode == OpenMode::kCreate) flags |= O_CREAT | O_TRUNC;
    if (direct) flags |= O_DIRECT;
    const int fd = ::open(path.c_str(), flags, 0644);
    if (fd < 0 && errno == EINVAL && direct) {
      throw IoError(EINVAL,
                    "the file system has no direct access (O_DIRECT); use direct=False:", path);
    }
    if (fd < 0) {
      throw IoError(errno, mode == OpenMode::kCreate ? "cannot create" : "cannot open", path);
    }
    return std::make_unique<PosixFile>(fd, path);
  }

  bool Exists(const std::string& path) override {
    struct stat status;
    if (::stat(path.c_str(), &status) == 0) return true;
    if (errno != ENOENT && errno != ENOTDIR) throw IoError(errno, "cannot stat", path);
    return false;
  }

  void CreateDirectory(const std::string& path) override {
    for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string prefix = path.substr(0, end);
      if (::mkdir(prefix.c_str(), 0777) == 0) {
        SyncParent(prefix);
      } else {
        const int error = errno;
        struct stat status;
        const bool there = ::stat(prefix.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
        if (!there) throw IoError(error, "cannot create the directory", prefix);
      }
      if (end == std::string::npos) return;
    }
  }

  std::vector<std::string> List(const std::string& directory) override {
    DIR* dir = ::opendir(directory.c_str());
    if (dir == nullptr) throw IoError(errno, "cannot list", directory);
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(dir)) names.emplace_back(entry->d_name);
    ::closedir(dir);
    return names;
  }

  void Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) throw IoError(errno, "cannot replace", to);
  }

  void Remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      throw IoError(errno, "cannot remove", path);
    }
  }

  void SyncDirectory(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) throw IoError(errno, "cannot open the directory", path);
    const int result = ::fsync(fd);
    const int error = errno;
    ::close(fd);
    if (result != 0) throw IoError(error, "cannot sync the directory", path);
  }

  std::unique_ptr<FileLock> Lock(const std::string& path, bool exclusive) override {
    return PosixLock::Take(path, exclusive);
  }

 private:
  // Syncs the parent of a new directory. If the sync throws, the directory is removed, so that the
  // next attempt creates and syncs the directory again.
  void SyncParent(const std::string& made) {
    const size_t slash = made.find_last_of('/', made.find_last_not_of('/'));
    const std::string parent = slash == std::string::npos ? "." : made.substr(0, slash + 1);
    try {
      SyncDirectory(parent);
    } catch (const IoError&) {
      ::rmdir(made.c_str());
      throw;
    }
  }
};

}  // namespace

Env* Env::Posix() {
  static PosixEnv env;
  return &env;
}

}  // namespace msrec
