// SPDX-License-Identifier: Apache-2.0
#include "ops/worker_share.h"

#include <string>

#include "workers/made_tables.h"

namespace msrec {

WorkerShare::WorkerShare(TableExchange* exchange)
    : exchange_(exchange), weights_(exchange->group->weights()) {}

std::vector<double> WorkerShare::Gather(const char* what, const std::vector<double>& mine) {
  Collective all(exchange_,
                 [&] { return what + (": " + std::to_string(mine.size()) + " numbers"); });
  std::vector<double> found;
  all.Try([&] { found.resize(mine.size() * static_cast<size_t>(all.size())); });
  all.Begin();
  all.Must(
      [&] { all.channel().AllGather(mine.data(), sizeof(double) * mine.size(), found.data()); });
  return found;
}

std::unique_ptr<BatchShare> TheShare() {
  TableExchange* exchange = TheExchange();
  return exchange == nullptr ? nullptr : std::make_unique<WorkerShare>(exchange);
}

}  // namespace msrec
