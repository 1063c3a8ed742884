// SPDX-License-Identifier: Apache-2.0
#include "workers/thread_group.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "util/bytes.h"

namespace msrec {
namespace {

// Memory that a worker offers to the other workers for one collective call.
struct Offer {
  const char* data = nullptr;
  const size_t* bytes = nullptr;  // of each part
};

// The state that the channels of all workers share.
struct Meeting {
  explicit Meeting(int size) : offers(size), arrived(size, false), inboxes(size) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Offer> offers;
  std::vector<bool> arrived;
  int count = 0;
  uint64_t round = 0;
  bool broken = false;
  bool given_up = false;  // on purpose
  std::vector<std::deque<WorkerMessage>> inboxes;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(int rank, int size, const std::string& name, std::shared_ptr<Meeting> meeting)
      : Communicator(rank, size, name), meeting_(std::move(meeting)) {}

 private:
  // Waits until all workers have called Meet. When Meet returns, each worker can read what the
  // other workers wrote before they called Meet. Throws if any worker has timed out, because the
  // data of the timed-out worker can no longer be read.
  void Meet() {
    Meeting& m = *meeting_;
    std::unique_lock<std::mutex> lock(m.mutex);
    if (m.broken) throw WorkerError(Me() + "channel '" + name() + "' was given up by a worker");
    m.arrived[rank()] = true;
    const uint64_t round = m.round;
    if (++m.count == size()) {
      m.count = 0;
      ++m.round;
      m.arrived.assign(size(), false);
      m.changed.notify_all();
      return;
    }
    const auto limit = std::chrono::duration<double>(wait_limit());
    m.changed.wait_for(lock, limit, [&] { return m.round != round || m.broken; });
    if (m.round != round) return;
    if (m.given_up) throw WorkerError(Me() + "channel '" + name() + "' was given up by a worker");
    std::vector<int> missing;
    for (int r = 0; r < size(); ++r) {
      if (!m.arrived[r]) missing.push_back(r);
    }
    m.broken = true;
    m.changed.notify_all();
    lock.unlock();
    TimedOut(wait_limit(), missing);
  }

  void DoAllToAllV(const char* send, const size_t* send_bytes, char* recv,
                   const size_t* recv_bytes) override {
    meeting_->offers[rank()] = {send, send_bytes};
    Meet();
    int wrong = kAny;
    for (int r = 0; r < size(); ++r) {
      const Offer& offer = meeting_->offers[r];
      if (offer.bytes[rank()] != recv_bytes[r]) {
        wrong = r;
        break;
      }
      const char* part = offer.data;
      for (int before = 0; before < rank(); ++before) part += offer.bytes[before];
      CopyBytes(recv, part, recv_bytes[r]);
      recv += recv_bytes[r];
    }
    Meet();  // nobody changes what another one still reads
    if (wrong != kAny) {
      throw WorkerError(Me() + "worker " + std::to_string(wrong) +
                        " sent another number of bytes than expected on channel '" + name() + "'");
    }
  }

  void DoAllGatherV(const char* mine, char* all, const size_t* all_bytes) override {
    meeting_->offers[rank()] = {mine, all_bytes};
    Meet();
    int wrong = kAny;
    for (int r = 0; r < size(); ++r) {
      const Offer& offer = meeting_->offers[r];
      if (offer.bytes[r] != all_bytes[r]) {
        wrong = r;
        break;
      }
      // If the part is already at its place in `all`, do not copy the part, because the other
      // workers are reading this memory.
      if (offer.data != all) CopyBytes(all, offer.data, all_bytes[r]);
      all += all_bytes[r];
    }
    Meet();
    if (wrong != kAny) {
      throw WorkerError(Me() + "worker " + std::to_string(wrong) +
                        " gathers another number of bytes on channel '" + name() + "'");
    }
  }

  void DoBarrier() override { Meet(); }

  void DoGiveUp(const char*) override {
    const std::lock_guard<std::mutex> lock(meeting_->mutex);
    meeting_->broken = meeting_->given_up = true;
    meeting_->changed.notify_all();
  }

  void DoSend(int to, int tag, const char* data, size_t bytes) override {
    const std::lock_guard<std::mutex> lock(meeting_->mutex);
    meeting_->inboxes[to].push_back({rank(), tag, std::string(data, bytes)});
  }

  std::optional<WorkerMessage> DoTryReceive(int from, int tag) override {
    const std::lock_guard<std::mutex> lock(meeting_->mutex);
    std::deque<WorkerMessage>& inbox = meeting_->inboxes[rank()];
    for (auto it = inbox.begin(); it != inbox.end(); ++it) {
      if (it->tag != tag || (from != kAny && it->from != from)) continue;
      WorkerMessage found = std::move(*it);
      inbox.erase(it);
      return found;
    }
    return std::nullopt;
  }

  std::shared_ptr<Meeting> meeting_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeThreadChannel(int size, const std::string& name,
                                                             double wait_limit) {
  const auto meeting = std::make_shared<Meeting>(size);
  std::vector<std::unique_ptr<Communicator>> channel;
  for (int r = 0; r < size; ++r) {
    channel.push_back(std::make_unique<ThreadCommunicator>(r, size, name, meeting));
    channel.back()->set_wait_limit(wait_limit);
  }
  return channel;
}

std::vector<std::unique_ptr<WorkerGroup>> MakeThreadGroups(int size, double wait_limit) {
  std::vector<std::vector<std::unique_ptr<Communicator>>> channels(size);
  for (const char* name : kChannelNames) {
    auto made = MakeThreadChannel(size, name, wait_limit);
    for (int r = 0; r < size; ++r) channels[r].push_back(std::move(made[r]));
  }
  std::vector<std::unique_ptr<WorkerGroup>> groups;
  for (int r = 0; r < size; ++r) {
    groups.push_back(std::make_unique<WorkerGroup>(std::move(channels[r])));
  }
  return groups;
}

}  // namespace msrec
