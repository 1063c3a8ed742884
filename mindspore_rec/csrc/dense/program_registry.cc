// SPDX-License-Identifier: Apache-2.0
#include "dense/program_registry.h"

#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace msrec {
namespace {

std::mutex mutex;
int64_t last_id = 0;

std::unordered_map<int64_t, std::shared_ptr<const DenseProgram>>& Programs() {
  static auto* programs = new std::unordered_map<int64_t, std::shared_ptr<const DenseProgram>>;
  return *programs;
}

// Retired programs, the earliest first.
std::deque<int64_t>& Retired() {
  static auto* retired = new std::deque<int64_t>;
  return *retired;
}

}  // namespace

int64_t RegisterProgram(std::shared_ptr<const DenseProgram> program) {
  std::lock_guard<std::mutex> lock(mutex);
  Programs().emplace(++last_id, std::move(program));
  return last_id;
}

void UnregisterProgram(int64_t id) {
  std::lock_guard<std::mutex> lock(mutex);
  Programs().erase(id);
}

void RetireProgram(int64_t id) {
  // A call that releases or destroys a program may wait for a device. The mutex is not locked
  // during the wait for a device, because other threads may need programs.
  std::shared_ptr<const DenseProgram> now, oldest;
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto& programs = Programs();
    if (const auto found = programs.find(id); found != programs.end()) now = found->second;
    std::deque<int64_t>& retired = Retired();
    retired.push_back(id);
    if (retired.size() > kRetired) {
      if (const auto old = programs.find(retired.front()); old != programs.end()) {
        oldest = std::move(old->second);
        programs.erase(old);
      }
      retired.pop_front();
    }
  }
  if (now != nullptr) now->Release();
}

std::shared_ptr<const DenseProgram> FindProgram(int64_t id) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = Programs().find(id);
  if (found == Programs().end()) {
    throw std::runtime_error("there is no dense program " + std::to_string(id) +
                             ": its cell is gone, or the graph was made in another process");
  }
  return found->second;
}

}  // namespace msrec
