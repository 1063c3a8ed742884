// SPDX-License-Identifier: Apache-2.0
//
// Workers as threads of one process, for tests without a launcher.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "workers/communicator.h"
#include "workers/group.h"

namespace msrec {

// Returns the `size` communicators of one channel, one for each worker. The thread of worker r uses
// element r of the result. Elements may be destroyed in any order.
std::vector<std::unique_ptr<Communicator>> MakeThreadChannel(int size, const std::string& name,
                                                             double wait_limit = kDefaultWaitLimit);

// Returns one WorkerGroup per worker; each group has all channels. The threads of worker r use
// element r of the result.
std::vector<std::unique_ptr<WorkerGroup>> MakeThreadGroups(int size,
                                                           double wait_limit = kDefaultWaitLimit);

}  // namespace msrec
