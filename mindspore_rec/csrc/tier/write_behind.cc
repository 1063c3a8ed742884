// SPDX-License-Identifier: Apache-2.0
#include "tier/write_behind.h"

#include <cxxabi.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "util/background.h"

namespace msrec {
namespace {

constexpr auto kRetry = std::chrono::seconds(1);

}  // namespace

WriteBehind::WriteBehind(std::shared_ptr<Tier> tier, size_t max_bytes)
    : tier_(std::move(tier)), max_bytes_(max_bytes) {
  writer_ = StartThread("write rows down", [this] { WriterMain(); });
}

WriteBehind::~WriteBehind() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  writer_.join();
}

void WriteBehind::WriterMain() {
  YieldToOperators();
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || (!parts_.empty() && pauses_ == 0); });
    if (stop_) return;
    const std::shared_ptr<Part> part = parts_.front();
    busy_ = true;
    hurry_ = false;
    lock.unlock();
    std::exception_ptr error;
    try {
      if (part->clears) {
        tier_->Clear();
      } else if (part->rows.empty()) {
        tier_->Erase(part->keys.data(), part->keys.size());
      } else {
        tier_->Write(part->keys.data(), part->keys.size(), part->rows.data());
      }
#ifdef __GLIBCXX__
    } catch (abi::__forced_unwind&) {
      throw;  // Python ends a thread so that asks for its lock while it shuts down
#endif
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    const bool moot = moot_;
    moot_ = false;
    if (error == nullptr || moot) {
      error_ = nullptr;
      bytes_ -= part->bytes();
      parts_.pop_front();
      done_.notify_all();
      continue;
    }
    error_ = error;
    ++failures_;
    done_.notify_all();
    wake_.wait_for(lock, kRetry, [&] { return stop_ || hurry_; });
  }
}

template <typename Fn>
void WriteBehind::WaitFor(std::unique_lock<std::mutex>* lock, Fn fn) {
  const uint64_t failures = failures_;
  if (fn()) return;
  hurry_ = true;
  wake_.notify_all();
  // If the tier fails, and works again before the waiting thread wakes, error_ is null, so the wait
  // continues.
  done_.wait(*lock, [&] { return fn() || (failures_ != failures && error_ != nullptr); });
  if (!fn()) std::rethrow_exception(error_);
}

void WriteBehind::Push(std::shared_ptr<Part> part) {
  // The keys are distinct, so the number of a key in the set is the key's index in part->keys.
  part->set.Reset(part->keys.size());
  for (const int64_t key : part->keys) part->set.FindOrAdd(key, part->keys.data());
  std::unique_lock<std::mutex> lock(mutex_);
  WaitFor(&lock, [&] { return parts_.empty() || bytes_ + part->bytes() <= max_bytes_; });
  parts_.push_back(part);
  bytes_ += part->bytes();
  wake_.notify_all();
}

void WriteBehind::Write(std::vector<int64_t> keys, std::vector<char> rows) {
  if (keys.empty()) return;
  auto part = std::make_shared<Part>();
  part->keys = std::move(keys);
  part->rows = std::move(rows);
  Push(std::move(part));
}

void WriteBehind::Erase(std::vector<int64_t> keys) {
  if (keys.empty()) return;
  auto part = std::make_shared<Part>();
  part->keys = std::move(keys);
  Push(std::move(part));
}

void WriteBehind::ReadQueue(const int64_t* keys, size_t n, char* rows, bool* found,
                            bool* known) const {
  std::vector<std::shared_ptr<Part>> parts;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    parts.assign(parts_.begin(), parts_.end());
  }
  const size_t row_bytes = tier_->row_bytes();
  std::memset(known, 0, n);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {  // the newest first
    if ((*part)->clears) {
      for (size_t i = 0; i < n; ++i) {
        if (!known[i]) found[i] = false;
      }
      std::memset(known, 1, n);
      return;
    }
    for (size_t i = 0; i < n; ++i) {
      if (known[i]) continue;
      const uint32_t at = (*part)->set.Find(keys[i], (*part)->keys.data());
      if (at == KeySet::kNone) continue;
      known[i] = true;
      found[i] = !(*part)->rows.empty();
      if (found[i] && rows != nullptr) {
        std::memcpy(rows + i * row_bytes, (*part)->rows.data() + at * row_bytes, row_bytes);
      }
    }
  }
}

template <typename Below>
void WriteBehind::ReadBoth(const int64_t* keys, size_t n, char* rows, bool* found, Below below) {
  if (n == 0) return;
  std::unique_ptr<bool[]> known(new bool[n]);
  ReadQueue(keys, n, rows, found, known.get());
  std::vector<int64_t> rest;
  std::vector<size_t> at;
  for (size_t i = 0; i < n; ++i) {
    if (known[i]) continue;
    rest.push_back(keys[i]);
    at.push_back(i);
  }
  if (rest.size() == n) {
    below(keys, n, rows, found);
    return;
  }
  if (rest.empty()) return;
  const size_t row_bytes = tier_->row_bytes();
  std::vector<char> read(rows != nullptr ? rest.size() * row_bytes : 0);
  std::unique_ptr<bool[]> there(new bool[rest.size()]);
  below(rest.data(), rest.size(), read.data(), there.get());
  for (size_t j = 0; j < rest.size(); ++j) {
    found[at[j]] = there[j];
    if (there[j] && rows != nullptr) {
      std::memcpy(rows + at[j] * row_bytes, read.data() + j * row_bytes, row_bytes);
    }
  }
}

void WriteBehind::Read(const int64_t* keys, size_t n, char* rows, bool* found) {
  ReadBoth(keys, n, rows, found, [&](const int64_t* some, size_t count, char* to, bool* there) {
    tier_->Read(some, count, to, there);
  });
}

void WriteBehind::Contains(const int64_t* keys, size_t n, bool* found) {
  ReadBoth(keys, n, nullptr, found, [&](const int64_t* some, size_t count, char*, bool* there) {
    tier_->Contains(some, count, there);
  });
}

void WriteBehind::Drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  WaitFor(&lock, [&] { return parts_.empty(); });
}

void WriteBehind::Flush() {
  Drain();
  tier_->Flush();
}

void WriteBehind::Clear() {
  auto part = std::make_shared<Part>();
  part->clears = true;
  std::lock_guard<std::mutex> lock(mutex_);
  parts_.push_back(std::move(part));
  // The part that is being written stays in the queue until its write is done or has failed. After
  // the write in progress has ended, the background thread clears the tier. Clear drops all writes
  // that were queued earlier.
  parts_.erase(parts_.begin() + busy_, parts_.end() - 1);
  bytes_ = busy_ ? parts_.front()->bytes() : 0;
  moot_ = busy_;
  hurry_ = true;
  wake_.notify_all();
}

WriteBehind::Pause::Pause(WriteBehind* queue) : queue_(queue) {
  std::unique_lock<std::mutex> lock(queue_->mutex_);
  ++queue_->pauses_;
  queue_->done_.wait(lock, [&] { return !queue_->busy_; });
}

WriteBehind::Pause::~Pause() {
  std::lock_guard<std::mutex> lock(queue_->mutex_);
  --queue_->pauses_;
  queue_->wake_.notify_all();
}

size_t WriteBehind::waiting_rows() const {
  std::lock_guard<std::mutex> lock(mutex_);
  size_t rows = 0;
  for (const auto& part : parts_) rows += part->keys.size();
  return rows;
}

WriteBehind::Waiting WriteBehind::waiting() const {
  Waiting out;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    out.parts.assign(parts_.begin(), parts_.end());
  }
  const size_t row_bytes = tier_->row_bytes();
  for (const auto& part : out.parts) {  // the oldest first
    if (part->clears) {
      out.rows.clear();
      out.cleared = true;
    }
    for (size_t i = 0; i < part->keys.size(); ++i) {
      out.rows[part->keys[i]] = part->rows.empty() ? nullptr : part->rows.data() + i * row_bytes;
    }
  }
  return out;
}

}  // namespace msrec
