// SPDX-License-Identifier: Apache-2.0
//
// MemoryEnv: files of one directory in memory, a few megabytes at most.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tier/env.h"

namespace msrec {

class MemoryEnv : public Env {
 public:
  static constexpr uint64_t kMost = 4 << 20;  // bytes of a file

  std::map<std::string, std::shared_ptr<std::string>> files;  // by path

  std::unique_ptr<File> Open(const std::string& path, OpenMode mode, bool) override {
    std::shared_ptr<std::string>& text = files[path];
    if (text == nullptr && mode != OpenMode::kCreate) {
      files.erase(path);
      throw IoError(ENOENT, "cannot open", path);
    }
    if (mode == OpenMode::kCreate) text = std::make_shared<std::string>();
    return std::make_unique<MemoryFile>(path, text);
  }
  bool Exists(const std::string& path) override { return files.count(path) != 0; }
  void CreateDirectory(const std::string&) override {}
  std::vector<std::string> List(const std::string& directory) override {
    std::vector<std::string> names;
    for (const auto& [path, text] : files) names.push_back(path.substr(directory.size() + 1));
    return names;
  }
  void Rename(const std::string& from, const std::string& to) override {
    files[to] = files.at(from);
    files.erase(from);
  }
  void Remove(const std::string& path) override { files.erase(path); }
  void SyncDirectory(const std::string&) override {}
  std::unique_ptr<FileLock> Lock(const std::string&, bool) override {
    return std::make_unique<NoLock>();
  }

 private:
  struct NoLock : FileLock {
    void Check() const override {}
  };

  class MemoryFile : public File {
   public:
    MemoryFile(const std::string& path, std::shared_ptr<std::string> text)
        : File(path), text_(std::move(text)) {}
    size_t Read(uint64_t offset, size_t n, char* data) const override {
      if (offset >= text_->size()) return 0;
      const size_t got = std::min<uint64_t>(n, text_->size() - offset);
      std::memcpy(data, text_->data() + offset, got);
      return got;
    }
    void Write(uint64_t offset, size_t n, const char* data) override {
      Bound(offset, n);
      if (offset + n > text_->size()) text_->resize(offset + n);
      std::memcpy(&(*text_)[offset], data, n);
    }
    void Allocate(uint64_t size) override {
      Bound(size, 0);
      if (size > text_->size()) text_->resize(size);
    }
    void Truncate(uint64_t size) override {
      Bound(size, 0);
      text_->resize(size);
    }
    void Sync() override {}
    uint64_t Size() const override { return text_->size(); }

   private:
    void Bound(uint64_t offset, size_t n) const {
      if (offset > kMost || n > kMost - offset) throw IoError(ENOSPC, "cannot write", path());
    }
    const std::shared_ptr<std::string> text_;
  };
};

}  // namespace msrec
