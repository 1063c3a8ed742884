// SPDX-License-Identifier: Apache-2.0
#include "workers/mpi_communicator.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include "util/bytes.h"
#include "workers/group.h"
#include "workers/mpi_job.h"

namespace msrec {
namespace {

using Clock = std::chrono::steady_clock;

// MPI tags: first the tag of collective calls, then the tags of single messages, then the tags of
// pieces of long messages.
constexpr int kCollectiveTag = 0;
constexpr int kFirstMessageTag = 1;
constexpr int kFirstPieceTag = kFirstMessageTag + Communicator::kMaxTag + 1;
constexpr int kPieceTags = 1 << 13;  // MPI grants 32767 tags

constexpr size_t kLeastMessage = 64;  // bytes that are always sent in one piece

// The header of a single message. The data of a long message follow in pieces with a separate tag,
// so that messages of several threads do not mix.
struct MessageHead {
  uint64_t bytes = 0;
  int32_t piece_tag = 0;  // 0: the data follows in this message
  int32_t unused = 0;
};

// Pauses a waiting loop. At first, Pause only yields to other threads, so that the loop continues
// quickly. In later calls, Pause sleeps, and other threads can use the core.
class Patience {
 public:
  void Pause() {
    const double seconds = Seconds();
    if (seconds < 2e-3) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(seconds < 0.1 ? 30 : 200));
    }
  }
  double Seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

MpiCommunicator::MpiCommunicator(MpiJob* job, MpiHandle handle, const std::string& name)
    : Communicator(job->rank(), job->size(), name),
      job_(job),
      handle_(handle),
      subject_("channel '" + name + "'"),
      send_at_(job->size()),
      recv_at_(job->size()),
      barrier_bytes_(job->size(), 1),
      barrier_(job->size()) {
  messages_.Reserve(2 * static_cast<size_t>(job->size()));  // more only of messages in pieces
}

void MpiCommunicator::FillStarts(const size_t* bytes, std::vector<size_t>* starts) {
  size_t at = 0;
  for (size_t r = 0; r < starts->size(); ++r) {
    (*starts)[r] = at;
    at += bytes[r];
  }
}

void MpiCommunicator::Messages::Reserve(size_t messages) {
  requests.reserve(messages);
  expected.reserve(messages);
  for (std::vector<int>* each : {&peers, &places, &errors, &bytes}) each->reserve(messages);
}

void MpiCommunicator::Messages::Add(MpiRequest request, int peer, int64_t bytes_expected) {
  requests.push_back(request);
  peers.push_back(peer);
  expected.push_back(bytes_expected);
}

void MpiCommunicator::Messages::Clear() {
  requests.clear();
  peers.clear();
  expected.clear();
}

void MpiCommunicator::Check(int code, const char* what) const {
  if (code == 0) return;
  char text[512];
  job_->mpi().error_text(code, text, sizeof(text));
  job_->EndBroken((std::string(what) + " on " + subject_ + " failed: " + text).c_str());
}

template <typename Fn>
void MpiCommunicator::ForPieces(size_t bytes, const Fn& fn) const {
  size_t at = 0;
  do {
    const size_t piece = std::min(bytes - at, job_->most_bytes());
    fn(at, static_cast<int>(piece));
    at += piece;
  } while (at < bytes);
}

void MpiCommunicator::StartSend(const char* data, size_t bytes, int to, int tag,
                                Messages* messages) {
  ForPieces(bytes, [&](size_t begin, int piece) {
    MpiRequest request = 0;
    Check(job_->mpi().send(handle_, data + begin, piece, to, tag, &request), "sending");
    messages->Add(request, to, Messages::kSent);
  });
}

void MpiCommunicator::StartReceive(char* data, size_t bytes, int from, int tag,
                                   Messages* messages) {
  ForPieces(bytes, [&](size_t begin, int piece) {
    MpiRequest request = 0;
    Check(job_->mpi().receive(handle_, data + begin, piece, from, tag, &request), "receiving");
    messages->Add(request, from, piece);
  });
}

std::vector<int> MpiCommunicator::Missing(const Messages& messages) const {
  std::vector<int> senders, receivers;
  for (size_t i = 0; i < messages.requests.size(); ++i) {
    if (messages.requests[i] == job_->mpi().null_request) continue;
    (messages.expected[i] >= 0 ? senders : receivers).push_back(messages.peers[i]);
  }
  std::vector<int>& missing = senders.empty() ? receivers : senders;
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return missing;
}

// Ends the job if this worker waits for a worker that has announced its end, or if the time limit
// is over.
void MpiCommunicator::LookAround(const Messages& messages, double seconds, double* since_left) {
  constexpr double kUnderWay = 0.5;  // seconds for what a worker sent before it left
  const std::vector<int> missing = Missing(messages);
  const auto left = std::find_if(missing.begin(), missing.end(),
                                 [this](int peer) { return job_->HasLeft(peer); });
  SetWaiting(WaitText(seconds, missing));
  if (left != missing.end()) {
    if (*since_left < 0) *since_left = seconds;
    if (seconds - *since_left > kUnderWay) {
      job_->EndLeft(
          Me() + WaitText(seconds, missing) + "; worker " + std::to_string(*left) + " has ended",
          *left);
    }
  }
  if (seconds > wait_limit()) {
    job_->EndHung(Me() + WaitText(seconds, missing) + "; the limit is " +
                  std::to_string(static_cast<int64_t>(wait_limit())) + " s");
  }
}

void MpiCommunicator::Wait(Messages* messages) {
  constexpr double kLook = 0.1;  // seconds between two looks around
  const int n = static_cast<int>(messages->requests.size());
  std::vector<int>&places = messages->places, &errors = messages->errors, &bytes = messages->bytes;
  for (std::vector<int>* each : {&places, &errors, &bytes}) each->resize(n);
  int wrong = kAny;
  Patience patience;
  double next_look = kLook;
  double since_left = -1;
  for (int remaining = n; remaining > 0;) {
    int done = 0;
    Check(job_->mpi().test_some(n, messages->requests.data(), &done, places.data(), errors.data(),
                                bytes.data()),
          "waiting");
    for (int i = 0; i < done; ++i) {
      const int64_t expected = messages->expected[places[i]];
      Check(expected < 0 ? errors[i] : 0, "sending");
      if (expected >= 0 && (errors[i] != 0 || bytes[i] != expected)) {
        wrong = messages->peers[places[i]];
      }
    }
    if (done < 0) break;
    remaining -= done;
    if (remaining == 0 || done > 0) continue;
    patience.Pause();
    if (const double seconds = patience.Seconds(); seconds > next_look) {
      next_look = seconds + kLook;
      LookAround(*messages, seconds, &since_left);
    }
  }
  if (next_look > kLook) SetWaiting("");
  if (wrong != kAny) {
    throw WorkerError(Me() + "worker " + std::to_string(wrong) +
                      " sent another number of bytes than expected on channel '" + name() + "'");
  }
}

void MpiCommunicator::DoAllToAllV(const char* send, const size_t* send_bytes, char* recv,
                                  const size_t* recv_bytes) {
  job_->owner().Require(subject_);
  job_->RequireMember();
  if (send_bytes[rank()] != recv_bytes[rank()]) {
    throw std::invalid_argument("a worker sends itself as many bytes as it receives");
  }
  messages_.Clear();
  FillStarts(send_bytes, &send_at_);
  FillStarts(recv_bytes, &recv_at_);
  // Each worker sends first to the worker with the next rank, so that not all workers send to the
  // same worker first.
  for (int i = 1; i < size(); ++i) {
    const int from = (rank() + size() - i) % size();
    StartReceive(recv + recv_at_[from], recv_bytes[from], from, kCollectiveTag, &messages_);
  }
  for (int i = 1; i < size(); ++i) {
    const int to = (rank() + i) % size();
    StartSend(send + send_at_[to], send_bytes[to], to, kCollectiveTag, &messages_);
  }
  CopyBytes(recv + recv_at_[rank()], send + send_at_[rank()], send_bytes[rank()]);
  Wait(&messages_);
}

void MpiCommunicator::DoAllGatherV(const char* mine, char* all, const size_t* all_bytes) {
  job_->owner().Require(subject_);
  job_->RequireMember();
  messages_.Clear();
  FillStarts(all_bytes, &recv_at_);
  const std::vector<size_t>& at = recv_at_;
  for (int i = 1; i < size(); ++i) {
    const int from = (rank() + size() - i) % size();
    StartReceive(all + at[from], all_bytes[from], from, kCollectiveTag, &messages_);
  }
  for (int i = 1; i < size(); ++i) {
    StartSend(mine, all_bytes[rank()], (rank() + i) % size(), kCollectiveTag, &messages_);
  }
  if (mine != all + at[rank()]) CopyBytes(all + at[rank()], mine, all_bytes[rank()]);
  Wait(&messages_);
}

void MpiCommunicator::DoBarrier() {
  const char here = 0;
  DoAllGatherV(&here, barrier_.data(), barrier_bytes_.data());
}

void MpiCommunicator::DoGiveUp(const char* why) { job_->EndBroken(why); }

void MpiCommunicator::DoSend(int to, int tag, const char* data, size_t bytes) {
  job_->owner().Require(subject_);
  DropSent();
  const std::lock_guard<std::mutex> lock(sending_mutex_);
  MessageHead head;
  head.bytes = bytes;
  const bool is_long = bytes + sizeof(head) > std::max(job_->most_bytes(), kLeastMessage);
  if (is_long) head.piece_tag = kFirstPieceTag + static_cast<int>(long_messages_++ % kPieceTags);
  sending_.emplace_back();
  Outgoing& message = sending_.back();
  message.data.assign(reinterpret_cast<const char*>(&head), sizeof(head));
  message.data.append(data, bytes);
  const char* const begin = message.data.data();
  const size_t first = is_long ? sizeof(head) : message.data.size();
  MpiRequest request = 0;
  Check(job_->mpi().send(handle_, begin, static_cast<int>(first), to, kFirstMessageTag + tag,
                         &request),
        "sending");
  message.messages.Add(request, to, Messages::kSent);
  if (is_long) StartSend(begin + first, bytes, to, head.piece_tag, &message.messages);
}

void MpiCommunicator::DropSent() {
  const std::lock_guard<std::mutex> lock(sending_mutex_);
  std::vector<int> places, errors, bytes;
  for (auto it = sending_.begin(); it != sending_.end();) {
    std::vector<MpiRequest>& requests = it->messages.requests;
    const int n = static_cast<int>(requests.size());
    for (std::vector<int>* each : {&places, &errors, &bytes}) each->resize(n);
    int done = 0;
    Check(job_->mpi().test_some(n, requests.data(), &done, places.data(), errors.data(),
                                bytes.data()),
          "sending");
    for (int i = 0; i < done; ++i) Check(errors[i], "sending");
    const bool sent = std::all_of(requests.begin(), requests.end(), [this](MpiRequest request) {
      return request == job_->mpi().null_request;
    });
    it = sent ? sending_.erase(it) : std::next(it);
  }
}

std::optional<WorkerMessage> MpiCommunicator::DoTryReceive(int from, int tag) {
  job_->owner().Require(subject_);
  int found = 0, sender = 0, bytes = 0;
  MpiHandle matched = 0;
  Check(job_->mpi().probe(handle_, from == kAny ? kMpiAnySource : from, kFirstMessageTag + tag,
                          &found, &sender, &bytes, &matched),
        "looking for messages");
  if (found == 0) {
    DropSent();
    // A worker that has announced its end still answers requests until all workers have ended.
    const bool answers = name() == kChannelNames[static_cast<size_t>(Channel::kService)];
    if (from != kAny && job_->HasLeft(from) && from != rank() && !answers) {
      job_->EndLeft(Me() + "waits for a message of worker " + std::to_string(from) +
                        " on channel '" + name() + "', which has ended",
                    from);
    }
    return std::nullopt;
  }
  std::string first(static_cast<size_t>(bytes), '\0');
  Messages messages;
  MpiRequest request = 0;
  Check(job_->mpi().receive_matched(matched, first.data(), bytes, &request), "receiving");
  messages.Add(request, sender, bytes);
  Wait(&messages);
  MessageHead head;
  std::memcpy(&head, first.data(), sizeof(head));
  WorkerMessage message{sender, tag, ""};
  if (head.piece_tag == 0) {
    message.data = first.substr(sizeof(head));
    return message;
  }
  message.data.resize(head.bytes);
  messages.Clear();
  StartReceive(message.data.data(), head.bytes, sender, head.piece_tag, &messages);
  Wait(&messages);
  return message;
}

}  // namespace msrec
