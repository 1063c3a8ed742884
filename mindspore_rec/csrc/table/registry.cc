// SPDX-License-Identifier: Apache-2.0
#include "table/registry.h"

#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace msrec {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<Registered>> open;
  std::map<int64_t, std::string> closed;  // names, for messages
  std::set<std::string> names;
  int64_t next = 1;
};

Registry& TheRegistry() {
  static Registry* registry = new Registry;  // operators may run until the very end of the process
  return *registry;
}

}  // namespace

std::shared_ptr<Registered> CreateTable(const TableConfig& config) {
  Registry& registry = TheRegistry();
  if (config.name.empty()) throw std::invalid_argument("a table's name must not be empty");
  TableConfig numbered = config;
  {
    std::lock_guard<std::mutex> lock(registry.mutex);
    if (!registry.names.insert(config.name).second) {
      throw std::invalid_argument("name '" + config.name +
                                  "' is already used by an open table; close that table or choose "
                                  "another name");
    }
    numbered.id = registry.next++;
  }
  auto made = std::make_shared<Registered>();
  try {
    made->table = std::make_shared<Table>(numbered);
  } catch (...) {
    std::lock_guard<std::mutex> lock(registry.mutex);
    registry.names.erase(config.name);
    throw;
  }
  std::lock_guard<std::mutex> lock(registry.mutex);
  made->id = numbered.id;
  registry.open.emplace(made->id, made);
  return made;
}

std::shared_ptr<Registered> FindTable(int64_t id) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  const auto it = registry.open.find(id);
  if (it != registry.open.end()) return it->second;
  const auto closed = registry.closed.find(id);
  if (closed != registry.closed.end())
    throw TableClosed("table '" + closed->second + "': is closed");
  throw std::invalid_argument("there is no table with id " + std::to_string(id));
}

void CloseTable(int64_t id) {
  Registry& registry = TheRegistry();
  std::shared_ptr<Registered> leaving;
  {
    std::lock_guard<std::mutex> lock(registry.mutex);
    const auto it = registry.open.find(id);
    if (it == registry.open.end()) return;
    leaving = std::move(it->second);
    registry.open.erase(it);
    registry.closed.emplace(id, leaving->table->config().name);
    registry.names.erase(leaving->table->config().name);
  }
  leaving->table->Close();
}

}  // namespace msrec
