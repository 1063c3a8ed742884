// SPDX-License-Identifier: Apache-2.0
//
// Creates the tables of a worker process, and the exchange that its operators use.
#pragma once

#include <memory>

#include "workers/registry.h"
#include "workers/sharded_table.h"

namespace msrec {

// Returns the exchange of this process's operators; null if this process is the only worker.
TableExchange* TheExchange();
// Returns the exchange for the prefetching thread; null if this process is the only worker. The
// prefetching thread runs in parallel with operators.
TableExchange* TheExchangeAhead();

// If there are several workers, calls fn with the table over all workers; if there is only one
// worker, calls fn with the table itself. All workers must call ByExchange, in the same order.
template <typename Fn>
auto ByExchange(const Registered& registered, const Fn& fn) {
  return registered.over_workers != nullptr ? fn(*registered.over_workers) : fn(*registered.table);
}

// Creates a table, like CreateTable. If there are other workers, the new table is this worker's
// part of a table over all workers. The new table's placement has the same kind as
// config.placement. The owner is config.placement.owner modulo the number of workers.
std::shared_ptr<Registered> CreateTableOverWorkers(const TableConfig& config, bool replace);

}  // namespace msrec
