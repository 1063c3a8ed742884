// SPDX-License-Identifier: Apache-2.0
//
// FaultEnv: the file system as a bad day has it. Over the real files of a directory it refuses
// calls on demand, and it can lose power: whatever was not synced then goes, or stays, sector by
// sector and name by name, as chance wants it. Afterwards every call fails, as for a dead process.
// No descriptor is handed out, so all reads come through here too.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "testing.h"
#include "tier/env.h"

namespace msrec {

class FaultEnv : public Env {
 public:
  explicit FaultEnv(uint64_t seed) : rng_(seed) {}

  // Asked before each call ("write", "sync", "allocate", "create", "rename", ...); what is not 0 is
  // the errno it fails with. A write that fails has written half of its bytes.
  using Fail = std::function<int(const std::string& call, const std::string& path)>;
  void FailWith(Fail fail) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fail_ = std::move(fail);
  }

  // The next call after this many changes finds the power gone.
  void LosePowerAfter(int64_t changes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    left_ = changes;
  }
  bool dead() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return dead_;
  }
  // Restores what the disk holds after the power went. Requires: nobody uses the files any more.
  void Reboot();

  std::unique_ptr<File> Open(const std::string& path, OpenMode mode, bool direct) override;
  bool Exists(const std::string& path) override {
    Gate("exists", path, false);
    return base_->Exists(path);
  }
  void CreateDirectory(const std::string& path) override {
    Gate("mkdir", path, true);
    base_->CreateDirectory(path);
  }
  std::vector<std::string> List(const std::string& directory) override {
    Gate("list", directory, false);
    return base_->List(directory);
  }
  void Rename(const std::string& from, const std::string& to) override;
  void Remove(const std::string& path) override;
  void SyncDirectory(const std::string& path) override;
  std::unique_ptr<FileLock> Lock(const std::string& path, bool exclusive) override {
    Gate("lock", path, true);
    return base_->Lock(path, exclusive);
  }

 private:
  friend class FaultFile;
  static constexpr size_t kSector = 512;
  using Sectors = std::map<uint64_t, std::string>;  // offset -> what the disk has for sure

  void Gate(const std::string& call, const std::string& path, bool change);
  void Remember(const std::string& path, uint64_t offset, size_t n, const File& file);

  Env* const base_ = Env::Posix();
  mutable std::mutex mutex_;
  Rng rng_;
  Fail fail_;
  bool dead_ = false;
  int64_t left_ = -1;
  std::map<std::string, Sectors> unsynced_;  // by path
  std::vector<std::function<void()>> undo_;  // names changed since the directory was synced
};

class FaultFile : public File {
 public:
  FaultFile(FaultEnv* env, std::unique_ptr<File> base)
      : File(base->path()), env_(env), base_(std::move(base)) {}
  size_t Read(uint64_t offset, size_t n, char* data) const override {
    env_->Gate("read", path(), false);
    return base_->Read(offset, n, data);
  }
  void Write(uint64_t offset, size_t n, const char* data) override {
    env_->Remember(path(), offset, n, *base_);
    try {
      env_->Gate("write", path(), true);
    } catch (const IoError&) {
      if (!env_->dead()) base_->Write(offset, n / 2, data);
      throw;
    }
    base_->Write(offset, n, data);
  }
  void Allocate(uint64_t size) override {
    env_->Gate("allocate", path(), true);
    base_->Allocate(size);
  }
  void Truncate(uint64_t size) override {
    env_->Gate("truncate", path(), true);
    base_->Truncate(size);
  }
  void Sync() override {
    env_->Gate("sync", path(), true);
    base_->Sync();
    const std::lock_guard<std::mutex> lock(env_->mutex_);
    env_->unsynced_.erase(path());
  }
  uint64_t Size() const override { return base_->Size(); }

 private:
  FaultEnv* const env_;
  const std::unique_ptr<File> base_;
};

inline std::unique_ptr<File> FaultEnv::Open(const std::string& path, OpenMode mode, bool) {
  Gate(mode == OpenMode::kCreate ? "create" : "open", path, mode == OpenMode::kCreate);
  const bool created = mode == OpenMode::kCreate && !base_->Exists(path);
  auto file = std::make_unique<FaultFile>(this, base_->Open(path, mode, false));
  if (created) {
    const std::lock_guard<std::mutex> lock(mutex_);
    undo_.push_back([this, path] { base_->Remove(path); });
  }
  return file;
}

inline void FaultEnv::Rename(const std::string& from, const std::string& to) {
  Gate("rename", to, true);
  const std::string before = to + ".before";
  const bool replaces = base_->Exists(to);
  if (replaces) {  // a copy, for the name may come back
    const auto source = base_->Open(to, OpenMode::kRead, false);
    std::string text(source->Size(), '\0');
    source->Read(0, text.size(), &text[0]);
    base_->Open(before, OpenMode::kCreate, false)->Write(0, text.size(), text.data());
  }
  base_->Rename(from, to);
  const std::lock_guard<std::mutex> lock(mutex_);
  undo_.push_back([this, before, to, replaces] {
    if (replaces) {
      if (base_->Exists(before)) base_->Rename(before, to);
    } else {
      base_->Remove(to);
    }
  });
}

inline void FaultEnv::Remove(const std::string& path) {
  Gate("remove", path, true);
  if (!base_->Exists(path)) return;
  const std::string kept = path + ".removed";
  base_->Rename(path, kept);
  const std::lock_guard<std::mutex> lock(mutex_);
  undo_.push_back([this, path, kept] {
    if (base_->Exists(kept)) base_->Rename(kept, path);
  });
}

inline void FaultEnv::SyncDirectory(const std::string& path) {
  Gate("syncdir", path, true);
  const std::lock_guard<std::mutex> lock(mutex_);
  undo_.clear();
  for (const std::string& name : base_->List(path)) {
    const auto ends = [&](const std::string& tail) {
      return name.size() > tail.size() && name.substr(name.size() - tail.size()) == tail;
    };
    if (ends(".removed") || ends(".before")) base_->Remove(path + "/" + name);
  }
}

inline void FaultEnv::Gate(const std::string& call, const std::string& path, bool change) {
  int error = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (change && left_ >= 0 && left_-- == 0) dead_ = true;
    if (dead_) throw IoError(EIO, "the power is gone:", path);
    error = fail_ ? fail_(call, path) : 0;
  }
  if (error != 0) throw IoError(error, "cannot " + call, path);
}

inline void FaultEnv::Remember(const std::string& path, uint64_t offset, size_t n,
                               const File& file) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (dead_) return;
  Sectors& sectors = unsynced_[path];
  for (uint64_t at = offset / kSector * kSector; at < offset + n; at += kSector) {
    if (sectors.count(at) != 0) continue;
    std::string before(kSector, '\0');
    before.resize(file.Read(at, kSector, &before[0]));
    sectors.emplace(at, before);
  }
}

inline void FaultEnv::Reboot() {
  // Data first, under the names that the files have now.
  for (const auto& [path, sectors] : unsynced_) {
    if (!base_->Exists(path)) continue;
    const auto file = base_->Open(path, OpenMode::kReadWrite, false);
    const uint64_t share = 1 + rng_.Below(4);  // little or much of it has arrived
    for (const auto& [offset, before] : sectors) {
      if (rng_.Below(4) < share) continue;
      file->Write(offset, before.size(), before.data());
    }
  }
  unsynced_.clear();
  // A file system with a journal keeps the order of names: a prefix of the changes survives.
  const size_t keep = undo_.empty() ? 0 : rng_.Below(undo_.size() + 1);
  while (undo_.size() > keep) {
    undo_.back()();
    undo_.pop_back();
  }
  undo_.clear();
  dead_ = false;
  left_ = -1;
}

}  // namespace msrec
