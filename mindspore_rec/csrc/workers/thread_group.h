// SPDX-License-Identifier: Apache-2.0
//
// Workers that are threads of one process, for tests without a launcher.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "workers/communicator.h"
#include "workers/group.h"

namespace msrec {

// Returns one channel of `size` workers; element r is used by the thread that plays worker r. They
// may be destroyed in any order.
std::vector<std::unique_ptr<Communicator>> MakeThreadChannel(int size, const std::string& name,
                                                             double wait_limit = kDefaultWaitLimit);

// Returns `size` groups, each with every channel; element r is used by the threads of worker r.
std::vector<std::unique_ptr<WorkerGroup>> MakeThreadGroups(int size,
                                                           double wait_limit = kDefaultWaitLimit);

}  // namespace msrec
