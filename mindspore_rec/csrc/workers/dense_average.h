// SPDX-License-Identifier: Apache-2.0
//
// The dense part over workers: all train the same parameters, by the average of their gradients.
#pragma once

#include <string>
#include <vector>

#include "workers/collective.h"
#include "workers/reduce.h"

namespace msrec {

// Writes the sums of the gradients over workers, each worker's times its weight in the step, with
// the same bits on all. Those that begin at gradients[i] have sums[i].size floats.
void AverageOverWorkers(TableExchange* exchange, const std::vector<const float*>& gradients,
                        const std::vector<SummedSpan>& sums);

// Throws WorkerError on all workers unless they hold the same bits; the message names the first
// parameter that differs.
void CheckSameOverWorkers(TableExchange* exchange, const std::vector<ByteSpan>& parameters,
                          const std::vector<std::string>& names);

}  // namespace msrec
