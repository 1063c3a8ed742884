// SPDX-License-Identifier: Apache-2.0
//
// Runs a function as each of several workers, a thread for each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "workers/communicator.h"

namespace msrec {

using Channels = std::vector<std::unique_ptr<Communicator>>;

// Returns the messages of the exceptions that fn(worker) threw, "" for none.
inline std::vector<std::string> OnThreads(size_t workers, const std::function<void(int)>& fn) {
  std::vector<std::string> errors(workers);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < workers; ++r) {
    threads.emplace_back([&, r] {
      try {
        fn(static_cast<int>(r));
      } catch (const std::exception& error) {
        errors[r] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

// The same of fn(channel).
inline std::vector<std::string> OnWorkers(const Channels& channels,
                                          const std::function<void(Communicator&)>& fn) {
  return OnThreads(channels.size(), [&](int r) { fn(*channels[r]); });
}

}  // namespace msrec
