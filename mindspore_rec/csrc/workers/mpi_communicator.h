// SPDX-License-Identifier: Apache-2.0
//
// A channel that uses non-blocking MPI messages between each pair of workers, so that a waiting
// call can name the missing workers.
#pragma once

#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "workers/communicator.h"
#include "workers/mpi_shim.h"

namespace msrec {

class MpiJob;

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiJob* job, MpiHandle handle, const std::string& name);

 private:
  // Messages in flight.
  struct Messages {
    std::vector<MpiRequest> requests;
    std::vector<int> peers;
    std::vector<int64_t> expected;  // bytes to be received; kSent of one that is sent
    static constexpr int64_t kSent = -1;
    std::vector<int> places, errors, bytes;  // of those that have arrived
    // Reserve memory for `messages` messages. Throws std::bad_alloc.
    void Reserve(size_t messages);
    void Add(MpiRequest request, int peer, int64_t bytes_expected);
    void Clear();
  };
  // A single message that is being sent, and the message's memory.
  struct Outgoing {
    std::string data;
    Messages messages;
  };

  void DoAllToAllV(const char* send, const size_t* send_bytes, char* recv,
                   const size_t* recv_bytes) override;
  void DoAllGatherV(const char* mine, char* all, const size_t* all_bytes) override;
  void DoBarrier() override;
  void DoGiveUp(const char* why) override;
  void DoSend(int to, int tag, const char* data, size_t bytes) override;
  std::optional<WorkerMessage> DoTryReceive(int from, int tag) override;

  // Calls fn(begin, bytes) for pieces of at most MpiJob::most_bytes. A message of 0 bytes is one
  // piece.
  template <typename Fn>
  void ForPieces(size_t bytes, const Fn& fn) const;
  // Starts to send or to receive a message, in pieces of at most MpiJob::most_bytes.
  void StartSend(const char* data, size_t bytes, int to, int tag, Messages* messages);
  void StartReceive(char* data, size_t bytes, int from, int tag, Messages* messages);
  // Waits for all messages. Ends the job if the wait takes too long or a worker has announced its
  // end. Throws WorkerError if a worker has sent an unexpected number of bytes.
  void Wait(Messages* messages);
  // Frees single messages that have been sent.
  void DropSent();
  std::vector<int> Missing(const Messages& messages) const;
  void LookAround(const Messages& messages, double seconds, double* since_left);
  void Check(int code, const char* what) const;

  // Set the beginning of each part; the parts are consecutive.
  static void FillStarts(const size_t* bytes, std::vector<size_t>* starts);

  MpiJob* const job_;
  const MpiHandle handle_;
  const std::string subject_;  // of messages
  // Buffers of collective calls. The buffers are allocated together with the channel, so that a
  // call needs no memory.
  Messages messages_;
  std::vector<size_t> send_at_, recv_at_, barrier_bytes_;
  std::vector<char> barrier_;
  std::mutex sending_mutex_;
  std::list<Outgoing> sending_;
  uint32_t long_messages_ = 0;
};

}  // namespace msrec
