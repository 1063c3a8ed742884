// SPDX-License-Identifier: Apache-2.0
//
// Makes the tables of a process that is one of several workers, and the exchange of its operators.
#pragma once

#include <memory>

#include "workers/registry.h"
#include "workers/sharded_table.h"

namespace msrec {

// Returns the exchange of this process's operators; null where it is the only worker.
TableExchange* TheExchange();
// Returns what the thread that reads ahead exchanges by, beside operators; null likewise.
TableExchange* TheExchangeAhead();

// Calls fn with the table over all workers where there are several, else with the table. All
// workers call, in the same order.
template <typename Fn>
auto ByExchange(const Registered& registered, const Fn& fn) {
  return registered.over_workers != nullptr ? fn(*registered.over_workers) : fn(*registered.table);
}

// Makes a table as CreateTable does; where there are other workers, this one's part of a table over
// all of them. Its placement's kind counts, and `owner` modulo the number of workers.
std::shared_ptr<Registered> CreateTableOverWorkers(const TableConfig& config, bool replace);

}  // namespace msrec
