// SPDX-License-Identifier: Apache-2.0
//
// Training of dense parameters by several workers: all workers train the same parameters with the
// average of their gradients.
#pragma once

#include <string>
#include <vector>

#include "workers/collective.h"
#include "workers/reduce.h"

namespace msrec {

// Adds the gradients of all workers and writes the sums to `sums`; the sums are identical bit for
// bit on all workers. The gradients of each worker are multiplied by the worker's weight in the
// step. Each gradients[i] points to sums[i].size floats.
void AverageOverWorkers(TableExchange* exchange, const std::vector<const float*>& gradients,
                        const std::vector<SummedSpan>& sums);

// Throws WorkerError on all workers unless the parameters of all workers are identical bit for bit.
// The message names the first parameter that differs.
void CheckSameOverWorkers(TableExchange* exchange, const std::vector<ByteSpan>& parameters,
                          const std::vector<std::string>& names);

}  // namespace msrec
