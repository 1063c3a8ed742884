// SPDX-License-Identifier: Apache-2.0
//
// Requests for rows that another worker sends: the input is the message behind its tag. The service
// answers, whatever it is asked, and the table is whole: a request by the library comes next.
#include <memory>
#include <stdexcept>
#include <string>

#include "fuzzer.h"
#include "table/table.h"
#include "workers/remote_rows.h"
#include "workers/row_service.h"
#include "workers/thread_group.h"

namespace msrec {
namespace {

constexpr int kDim = 3;
constexpr double kLimit = 30.0;      // seconds that a worker waits for another one
constexpr size_t kMostRows = 10000;  // of the table, before it is emptied

TableConfig ConfigOf(uint32_t rank) {
  TableConfig config;
  config.name = "t";
  config.dim = kDim;
  config.placement = {PlacementKind::kSharded, 2, rank, 0};
  return config;
}

std::shared_ptr<Table> TableOf(uint32_t rank) {
  auto table = std::make_shared<Table>(ConfigOf(rank));
  Rule rule;
  rule.kind = RuleKind::kAdam;
  table->BindOptimizer(rule);
  return table;
}

// Two workers as threads: this one asks, the other one's service answers.
struct Asked {
  std::vector<std::unique_ptr<WorkerGroup>> groups = MakeThreadGroups(2, kLimit);
  std::shared_ptr<Table> table = TableOf(1), mine = TableOf(0);
  RowService service{groups[1].get(), [this](const std::string&) { return table; }};
  RemoteRows rows{*mine, groups[0].get(), 1};
};

void FuzzRowRequests(const uint8_t* data, size_t size) {
  static Asked* const asked = new Asked();  // its thread must not outlive the program's statics
  Communicator& channel = asked->groups[0]->channel(Channel::kService);
  const int32_t tag = RowService::kFirstReplyTag;  // which no request of the library names
  std::string message(reinterpret_cast<const char*>(&tag), sizeof tag);
  message.append(reinterpret_cast<const char*>(data), size);
  channel.Send(1, RowService::kRequestTag, message.data(), message.size());
  if (asked->rows.Size() != asked->table->Size()) {  // answered when all before has been done
    throw std::logic_error("a size that is not the table's");
  }
  bool replied = false;
  while (channel.TryReceive(1, tag)) replied = true;
  if (!replied) throw std::logic_error("a request without a reply");
  if (asked->table->Size() > kMostRows) asked->table->Clear();
}

const AddFuzzTarget kRowRequests("row_requests", FuzzRowRequests);

}  // namespace
}  // namespace msrec
