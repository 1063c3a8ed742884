// SPDX-License-Identifier: Apache-2.0
#include "workers/row_service.h"

#include <chrono>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "util/background.h"
#include "workers/registry.h"
#include "workers/row_messages.h"

namespace msrec {
namespace {

// Shortest and longest wait between two checks for a request. The wait is short after a request,
// and doubles with each check that finds no request.
constexpr auto kShortestNap = std::chrono::microseconds(50);
constexpr auto kLongestNap = std::chrono::microseconds(5000);
// Workers create their tables at different times. If a request's table does not exist yet, the
// request waits for the table for at most kTableLimit.
constexpr auto kTableLimit = std::chrono::seconds(10);

std::mutex the_mutex;
std::unique_ptr<RowService> the_service;

// Run the request on the table, and write the reply.
void Handle(Table& table, RowRequest what, MessageReader* in, MessageWriter* out) {
  const size_t dim = table.dim();
  switch (what) {
    case RowRequest::kFind:
    case RowRequest::kInsert: {
      const std::vector<int64_t> ids = ReadIds(in);
      const IdFilter filter = ReadFilter(in);
      std::vector<float> values(ids.size() * dim);
      table.Get(ViewOf(ids), filter, what == RowRequest::kInsert, values.data());
      out->PutBytes(values.data(), values.size() * sizeof(float));
      return;
    }
    case RowRequest::kPut: {
      const std::vector<int64_t> ids = ReadIds(in);
      table.Put(ViewOf(ids), in->TakeArray<float>(ids.size() * dim).get(), ids.size());
      return;
    }
    case RowRequest::kImport: {
      const std::vector<int64_t> ids = ReadIds(in);
      table.Import(ViewOf(ids), in->TakeArray<float>(ids.size() * dim).get());
      return;
    }
    case RowRequest::kErase:
      out->Put(static_cast<uint64_t>(table.Erase(ViewOf(ReadIds(in)))));
      return;
    case RowRequest::kContains: {
      const std::vector<int64_t> ids = ReadIds(in);
      const auto found = std::make_unique<bool[]>(ids.size());
      table.Contains(ViewOf(ids), found.get());
      out->PutBytes(found.get(), ids.size());
      return;
    }
    case RowRequest::kSize:
      out->Put(static_cast<uint64_t>(table.Size()));
      return;
    case RowRequest::kKeys: {
      const std::vector<int64_t> keys = table.Keys();
      out->PutBytes(keys.data(), keys.size() * sizeof(int64_t));
      return;
    }
    case RowRequest::kExport:
      WriteRows(table.Export(in->TakeBool()), out);
      return;
    case RowRequest::kExportKeys: {
      const bool with_state = in->TakeBool();
      WriteRows(table.ExportKeys(ViewOf(ReadIds(in)), with_state), out);
      return;
    }
    case RowRequest::kExplain:
      WriteExplanation(table.Explain(in->Take<int64_t>()), out);
      return;
  }
  throw std::runtime_error("a request of an unknown kind came: do all workers run one version?");
}

MessageWriter ErrorReply(RowReply status, const char* text) {
  MessageWriter reply;
  reply.Put(status);
  reply.PutString(text);
  return reply;
}

}  // namespace

RowService::RowService(WorkerGroup* group, FindTable find)
    : channel_(group->channel(Channel::kService)), find_(std::move(find)) {
  thread_ = StartThread("answer other workers", [this] { Run(); });
}

RowService::~RowService() {
  stopping_ = true;
  thread_.join();
}

void RowService::Run() {
  YieldToOperators();
  try {
    Serve();
  } catch (const std::bad_alloc&) {
    // A request or an answer was lost because memory ran out, so the worker that sent the request
    // would wait forever.
    channel_.GiveUp("out of memory to answer another worker's request for rows");
  } catch (const std::exception&) {
    // The channel is broken; workers that wait for an answer report the error.
  }
}

void RowService::Serve() {
  auto nap = kShortestNap;
  while (!stopping_) {
    std::optional<WorkerMessage> request = channel_.TryReceive(Communicator::kAny, kRequestTag);
    AnswerWaiting();
    if (request) {
      if (!Answer(*request, false)) Postpone(std::move(*request));
      nap = kShortestNap;
    } else {
      std::this_thread::sleep_for(nap);
      nap = std::min(2 * nap, kLongestNap);
    }
  }
}

void RowService::Postpone(WorkerMessage request) {
  try {
    waiting_.emplace_back();
  } catch (const std::bad_alloc&) {
    Answer(request, true);
    return;
  }
  waiting_.back() = {Clock::now(), std::move(request)};
}

void RowService::AnswerWaiting() {
  const Clock::time_point now = Clock::now();
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const bool last = now - it->since > kTableLimit;
    it = Answer(it->request, last) ? waiting_.erase(it) : std::next(it);
  }
}

bool RowService::Answer(const WorkerMessage& request, bool last) {
  int tag = kFirstReplyTag;
  MessageWriter reply;
  try {
    MessageReader in(request.data);
    const auto asked = in.Take<int32_t>();
    if (asked <= kFirstReplyTag || asked > Communicator::kMaxTag) {
      throw std::runtime_error("a request has a tag of no reply, " + std::to_string(asked));
    }
    tag = asked;
    const auto what = in.Take<RowRequest>();
    const std::string name = in.TakeString();
    const std::shared_ptr<Table> table = find_(name);
    if (table == nullptr && !last) return false;
    if (table == nullptr) {
      throw std::runtime_error("table '" + name + "' is not there (yet, or any more)");
    }
    reply.Put(RowReply::kDone);
    Handle(*table, what, &in, &reply);
  } catch (const std::invalid_argument& error) {
    reply = ErrorReply(RowReply::kInvalid, error.what());
  } catch (const std::bad_alloc&) {
    reply = ErrorReply(RowReply::kFailed, "out of memory");
  } catch (const std::exception& error) {
    reply = ErrorReply(RowReply::kFailed, error.what());
  }
  try {
    channel_.Send(request.from, tag, reply.message().data(), reply.message().size());
  } catch (const WorkerError&) {
    // The worker that sent the request has ended, or reports its own timeout.
  }
  return true;
}

void StartRowService() {
  const std::lock_guard<std::mutex> lock(the_mutex);
  WorkerGroup* const group = TheGroup();
  if (group == nullptr || group->size() == 1 || the_service != nullptr) return;
  the_service = std::make_unique<RowService>(group, FindTableByName);
}

void StopRowService() {
  const std::lock_guard<std::mutex> lock(the_mutex);
  the_service.reset();
}

}  // namespace msrec
