// SPDX-License-Identifier: Apache-2.0
#include "workers/made_tables.h"

namespace msrec {

TableExchange* TheExchange() {
  WorkerGroup* group = TheGroup();
  if (group == nullptr || group->size() == 1) return nullptr;
  static auto* const exchange = new TableExchange(group);  // operators may run until the very end
  return exchange;
}

TableExchange* TheExchangeAhead() {
  if (TheExchange() == nullptr) return nullptr;
  static auto* const exchange = new TableExchange(TheGroup(), Channel::kAhead);
  return exchange;
}

std::shared_ptr<Registered> CreateTableOverWorkers(const TableConfig& config, bool replace) {
  TableExchange* exchange = TheExchange();
  if (exchange == nullptr) return CreateTable(config, replace);
  TableConfig placed = config;
  placed.placement.workers = static_cast<uint32_t>(exchange->group->size());
  placed.placement.rank = static_cast<uint32_t>(exchange->group->rank());
  placed.placement.owner %= placed.placement.workers;
  std::shared_ptr<Registered> made = CreateTable(placed, replace);
  made->over_workers = std::make_shared<ShardedTable>(exchange, made->table);
  return made;
}

}  // namespace msrec
