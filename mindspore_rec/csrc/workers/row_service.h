// SPDX-License-Identifier: Apache-2.0
//
// RowService: a thread that answers other workers' requests for the rows that this worker owns. By
// requests to the other workers, a worker can read and change all rows of a table at any time.
//
// A request is one message: the tag of its reply, its kind, the table's name, and arguments
// (row_messages.h). The reply is one message with the tag that the request contains. While the
// service has locked a table, the service never waits for another worker, so the reply waits only
// for this worker's operations on the table.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "workers/group.h"

namespace msrec {

class Table;

class RowService {
 public:
  // Return the table with this name, or null if there is no such table.
  using FindTable = std::function<std::shared_ptr<Table>(const std::string&)>;

  // Answers the requests that arrive on the group's service channel, until the RowService is
  // destroyed. Requires: the group outlives this object. Throws std::runtime_error if the system
  // allows no further thread.
  RowService(WorkerGroup* group, FindTable find);
  ~RowService();
  RowService(const RowService&) = delete;
  RowService& operator=(const RowService&) = delete;

  // Tag of requests. The tags of replies are greater than kFirstReplyTag. If a request has no valid
  // reply tag, the reply has the tag kFirstReplyTag. Tags below kRequestTag are for other messages
  // on the channel, which the service must not treat as requests.
  static constexpr int kRequestTag = 8192;
  static constexpr int kFirstReplyTag = kRequestTag + 1;

 private:
  using Clock = std::chrono::steady_clock;
  // A request for a table that does not exist yet.
  struct Waiting {
    Clock::time_point since;
    WorkerMessage request;
  };

  void Run();
  void Serve();
  // If the request's table is missing and `last` is false, send nothing and return false. In all
  // other cases, answer the request and return true. If the table is missing, the answer is an
  // error.
  bool Answer(const WorkerMessage& request, bool last);
  void AnswerWaiting();
  // Keep a request for at most 10 seconds, until the request's table exists.
  void Postpone(WorkerMessage request);

  Communicator& channel_;
  const FindTable find_;
  std::list<Waiting> waiting_;  // of the thread
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// Starts this process's RowService, which finds tables by FindTableByName. Does nothing if the
// service was already started, or if there is only one worker.
void StartRowService();
// Stops the service. Requires: from now on, no worker sends requests.
void StopRowService();

}  // namespace msrec
