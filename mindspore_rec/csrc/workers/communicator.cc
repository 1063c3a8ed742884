// SPDX-License-Identifier: Apache-2.0
#include "workers/communicator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

namespace msrec {
namespace {

using Clock = std::chrono::steady_clock;

thread_local ExchangeScope* innermost_scope = nullptr;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string RankList(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "worker " : "workers ";
  for (size_t i = 0; i < ranks.size() && i < 8; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > 8) text += " and " + std::to_string(ranks.size() - 8) + " more";
  return text;
}

}  // namespace

ExchangeScope::ExchangeScope(const char* what, const char* table)
    : what_(what), table_(table), outer_(innermost_scope) {
  innermost_scope = this;
}

ExchangeScope::~ExchangeScope() { innermost_scope = outer_; }

std::string ExchangeScope::Text() {
  if (innermost_scope == nullptr) return "";
  std::string text = innermost_scope->what_;
  if (*innermost_scope->table_ != '\0') {
    text += std::string(" of table '") + innermost_scope->table_ + "'";
  }
  return text;
}

// Counts one collective call, and throws WorkerError if another collective call is running on the
// channel.
class Communicator::CollectiveCall {
 public:
  explicit CollectiveCall(Communicator* channel) : channel_(channel), start_(Clock::now()) {
    if (channel_->busy_.exchange(true)) {
      throw WorkerError(channel_->Me() + "two threads call channel '" + channel_->name_ +
                        "' at the same time");
    }
  }
  ~CollectiveCall() {
    channel_->calls_.fetch_add(1, std::memory_order_relaxed);
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_);
    channel_->nanoseconds_.fetch_add(static_cast<uint64_t>(time.count()),
                                     std::memory_order_relaxed);
    channel_->busy_.store(false, std::memory_order_release);
  }
  void Moved(uint64_t sent, uint64_t received) {
    channel_->bytes_sent_.fetch_add(sent, std::memory_order_relaxed);
    channel_->bytes_received_.fetch_add(received, std::memory_order_relaxed);
  }

 private:
  Communicator* channel_;
  Clock::time_point start_;
};

std::string WorkerPrefix(int rank, int size) {
  return "worker " + std::to_string(rank) + " of " + std::to_string(size) + ": ";
}

Communicator::Communicator(int rank, int size, std::string name)
    : rank_(rank), size_(size), name_(std::move(name)), equal_bytes_(size) {}

ChannelStatistics Communicator::statistics() const {
  ChannelStatistics result;
  result.calls = calls_.load(std::memory_order_relaxed);
  result.bytes_sent = bytes_sent_.load(std::memory_order_relaxed);
  result.bytes_received = bytes_received_.load(std::memory_order_relaxed);
  result.seconds = 1e-9 * static_cast<double>(nanoseconds_.load(std::memory_order_relaxed));
  return result;
}

template <typename Fn>
void Communicator::OrGiveUp(const Fn& fn) {
  try {
    fn();
  } catch (const std::bad_alloc&) {
    GiveUp("out of memory in an exchange with the other workers");
    throw;
  }
}

void Communicator::AllToAllV(const void* send, const size_t* send_bytes, void* recv,
                             const size_t* recv_bytes) {
  CollectiveCall call(this);
  OrGiveUp([&] {
    DoAllToAllV(static_cast<const char*>(send), send_bytes, static_cast<char*>(recv), recv_bytes);
  });
  uint64_t sent = 0;
  uint64_t received = 0;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    sent += send_bytes[r];
    received += recv_bytes[r];
  }
  call.Moved(sent, received);
}

void Communicator::AllGather(const void* mine, size_t bytes, void* all) {
  CollectiveCall call(this);
  std::fill(equal_bytes_.begin(), equal_bytes_.end(), bytes);
  OrGiveUp([&] {
    DoAllGatherV(static_cast<const char*>(mine), static_cast<char*>(all), equal_bytes_.data());
  });
  call.Moved(static_cast<uint64_t>(size_ - 1) * bytes, static_cast<uint64_t>(size_ - 1) * bytes);
}

void Communicator::AllGatherV(const void* mine, void* all, const size_t* all_bytes) {
  CollectiveCall call(this);
  OrGiveUp(
      [&] { DoAllGatherV(static_cast<const char*>(mine), static_cast<char*>(all), all_bytes); });
  uint64_t received = 0;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) received += all_bytes[r];
  }
  call.Moved(static_cast<uint64_t>(size_ - 1) * all_bytes[rank_], received);
}

void Communicator::Barrier() {
  CollectiveCall call(this);
  OrGiveUp([&] { DoBarrier(); });
}

void Communicator::Send(int to, int tag, const void* data, size_t bytes) {
  CheckRank(to);
  CheckTag(tag);
  DoSend(to, tag, static_cast<const char*>(data), bytes);
}

std::optional<WorkerMessage> Communicator::TryReceive(int from, int tag) {
  if (from != kAny) CheckRank(from);
  CheckTag(tag);
  return DoTryReceive(from, tag);
}

WorkerMessage Communicator::Receive(int from, int tag) {
  const Clock::time_point start = Clock::now();
  for (int tries = 0;; ++tries) {
    std::optional<WorkerMessage> message = TryReceive(from, tag);
    if (message.has_value()) return std::move(*message);
    const double seconds = SecondsSince(start);
    if (seconds > wait_limit()) {
      TimedOut(seconds, from == kAny ? std::vector<int>{} : std::vector<int>{from});
    }
    if (tries < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(tries < 1000 ? 50 : 500));
    }
  }
}

void Communicator::TimedOut(double seconds, const std::vector<int>& missing) const {
  throw WorkerError(Me() + WaitText(seconds, missing));
}

std::string Communicator::WaitText(double seconds, const std::vector<int>& missing) const {
  std::string text = "waited " + std::to_string(std::lround(seconds)) + " s for " +
                     (missing.empty() ? "other workers" : RankList(missing)) + " on channel '" +
                     name_ + "'";
  const std::string what = ExchangeScope::Text();
  if (!what.empty()) text += ", to exchange " + what;
  return text;
}

std::string Communicator::waiting() const {
  const std::lock_guard<std::mutex> lock(waiting_mutex_);
  return waiting_;
}

void Communicator::SetWaiting(std::string text) {
  const std::lock_guard<std::mutex> lock(waiting_mutex_);
  waiting_ = std::move(text);
}

void Communicator::CheckTag(int tag) const {
  if (tag < 0 || tag > kMaxTag) {
    throw std::invalid_argument("tag must be in [0, " + std::to_string(kMaxTag) + "], got " +
                                std::to_string(tag));
  }
}

void Communicator::CheckRank(int rank) const {
  if (rank < 0 || rank >= size_) {
    throw std::invalid_argument("a worker must be in [0, " + std::to_string(size_) + "), got " +
                                std::to_string(rank));
  }
}

std::vector<std::string> GatherBytes(Communicator& channel, const std::string& mine) try {
  // In a first round, the workers exchange the lengths of all texts, and the short texts. In a
  // second round, the workers exchange the long texts.
  struct Head {
    uint64_t bytes = 0;
    char data[248] = {};
  };
  Head head;
  head.bytes = mine.size();
  if (mine.size() <= sizeof(head.data)) std::memcpy(head.data, mine.data(), mine.size());
  std::vector<Head> heads(channel.size());
  channel.AllGather(&head, sizeof(head), heads.data());
  std::vector<size_t> long_bytes;
  size_t total = 0;
  for (const Head& each : heads) {
    long_bytes.push_back(each.bytes <= sizeof(each.data) ? 0 : each.bytes);
    total += long_bytes.back();
  }
  std::string longer(total, '\0');
  if (total > 0) channel.AllGatherV(mine.data(), longer.data(), long_bytes.data());
  std::vector<std::string> all;
  size_t at = 0;
  for (int r = 0; r < channel.size(); ++r) {
    all.push_back(long_bytes[r] > 0 ? longer.substr(at, long_bytes[r])
                                    : std::string(heads[r].data, heads[r].bytes));
    at += long_bytes[r];
  }
  return all;
} catch (const std::bad_alloc&) {
  channel.GiveUp("out of memory for what the other workers say");
  throw;
}

}  // namespace msrec
