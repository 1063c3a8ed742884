// SPDX-License-Identifier: Apache-2.0
//
// Tables of a process that is one of several workers: how they are made, and what its operators
// exchange by.
#pragma once

#include <memory>

#include "table/registry.h"
#include "workers/sharded_table.h"

namespace msrec {

// Returns what the operators of this process exchange by; null where it is the only worker.
TableExchange* TheExchange();
// Returns what the thread that reads ahead exchanges by, beside operators; null likewise.
TableExchange* TheExchangeAhead();

// Makes a table as CreateTable does; where there are other workers, this one's part of a table over
// all of them. Its placement's kind counts, and `owner` modulo the number of workers.
std::shared_ptr<Registered> CreateTableOverWorkers(const TableConfig& config, bool replace);

}  // namespace msrec
