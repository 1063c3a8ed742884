// SPDX-License-Identifier: Apache-2.0
//
// Runs a function as each worker of a channel, a thread for each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "workers/communicator.h"

namespace msrec {

using Channels = std::vector<std::unique_ptr<Communicator>>;

// Returns what each worker threw, "" for nothing.
inline std::vector<std::string> OnWorkers(const Channels& channels,
                                          const std::function<void(Communicator&)>& fn) {
  std::vector<std::string> errors(channels.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < channels.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        fn(*channels[r]);
      } catch (const std::exception& error) {
        errors[r] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

}  // namespace msrec
