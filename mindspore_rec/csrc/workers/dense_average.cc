// SPDX-License-Identifier: Apache-2.0
#include "workers/dense_average.h"

namespace msrec {
namespace {

std::string Counted(size_t n) {
  return std::to_string(n) + (n == 1 ? " parameter" : " parameters");
}

}  // namespace

void AverageOverWorkers(TableExchange* exchange, const std::vector<const float*>& gradients,
                        const std::vector<SummedSpan>& sums) {
  Collective all(exchange,
                 [&] { return "average of the gradients of " + Counted(gradients.size()); });
  std::vector<float> weights;
  all.Try([&] {
    weights = all.group().weights();
    ReserveSum(all.channel(), sums);
  });
  all.Begin();
  all.Must([&] { WeightedSum(all.channel(), gradients, sums, weights.data()); });
}

void CheckSameOverWorkers(TableExchange* exchange, const std::vector<ByteSpan>& parameters,
                          const std::vector<std::string>& names) {
  Collective all(exchange, [&] { return "comparison of " + Counted(parameters.size()); });
  all.Begin();
  std::optional<WorkerDifference> difference;
  all.Must([&] { difference = FindDifference(all.channel(), parameters); });
  if (!difference.has_value()) return;
  std::string workers;
  for (const int r : difference->workers)
    workers += (workers.empty() ? "" : ", ") + std::to_string(r);
  throw WorkerError("dense parameter '" + names.at(difference->place) + "' of worker" +
                    (difference->workers.size() == 1 ? " " : "s ") + workers +
                    " differs from worker 0's: all workers must start from the same values, and "
                    "only an optimizer of mindspore_rec.optim may change them");
}

}  // namespace msrec
