// SPDX-License-Identifier: Apache-2.0
//
// RowService: a thread that answers other workers' requests for the rows that this worker owns. So
// a worker reads and changes any row of a table at any time, while the others do something else.
//
// A request is one message: the tag of its reply, its kind, the table's name, and arguments
// (row_messages.h). The reply is one message with that tag. Nothing here waits in a table's lock
// for another worker, so an answer never waits for more than an operation of the table itself.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "table/table.h"
#include "workers/group.h"

namespace msrec {

class RowService {
 public:
  // Return the table of a name, or null where there is none.
  using FindTable = std::function<std::shared_ptr<Table>(const std::string&)>;

  // Answers requests that come through the group's service channel, until it is destroyed.
  // Requires: the group outlives it. Throws std::runtime_error where there are no more threads.
  RowService(WorkerGroup* group, FindTable find);
  ~RowService();
  RowService(const RowService&) = delete;
  RowService& operator=(const RowService&) = delete;

  // Tag of requests. Tags of replies are behind kFirstReplyTag, which is the tag of replies to
  // requests that name none of these. Tags below are for other messages on the channel, which the
  // service would take for requests.
  static constexpr int kRequestTag = 8192;
  static constexpr int kFirstReplyTag = kRequestTag + 1;

 private:
  using Clock = std::chrono::steady_clock;
  // A request for a table that is not there yet.
  struct Waiting {
    Clock::time_point since;
    WorkerMessage request;
  };

  void Run();
  void Serve();
  // Answer a request; return false, with nothing sent, where its table is missing and it is not the
  // last time to look for it.
  bool Answer(const WorkerMessage& request, bool last);
  void AnswerWaiting();
  // Keep a request until its table is there.
  void Postpone(WorkerMessage request);

  Communicator& channel_;
  const FindTable find_;
  std::list<Waiting> waiting_;  // of the thread
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// Starts the service of this process's group with the registered tables, once; without a group it
// does nothing.
void StartRowService();
// Stops it. Requires: no worker asks any more.
void StopRowService();

}  // namespace msrec
