// SPDX-License-Identifier: Apache-2.0
#include "table/registry.h"

#include <pthread.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "util/background.h"
#include "util/process.h"

namespace msrec {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<Registered>> open;
  struct Closed {
    std::string name;
    std::weak_ptr<Table> table;  // while it is being closed
  };
  std::map<int64_t, Closed> closed;
  std::set<std::string> names;
  int64_t next = 1;

  // In a forked child: tables of the parent, which nothing here may touch, and whose names are
  // free.
  std::map<int64_t, std::shared_ptr<Registered>> inherited;
  uint64_t forks = ForkCount();
};

Registry& TheRegistry() {
  static Registry* const registry = [] {
    auto* made = new Registry;  // operators may run until the very end of the process
    // A child that is forked while another thread registers a table gets it whole, and not locked.
    pthread_atfork([] { TheRegistry().mutex.lock(); }, [] { TheRegistry().mutex.unlock(); },
                   [] { TheRegistry().mutex.unlock(); });
    return made;
  }();
  return *registry;
}

[[maybe_unused]] const Registry& made_at_the_start = TheRegistry();

// Has the registry of this process.
class Locked {
 public:
  Locked() : lock_(TheRegistry().mutex) {
    Registry& registry = TheRegistry();
    if (registry.forks == ForkCount()) return;
    registry.forks = ForkCount();
    registry.inherited.merge(registry.open);
    registry.open.clear();
    registry.names.clear();
  }
  Registry* operator->() const { return &TheRegistry(); }

 private:
  const std::lock_guard<std::mutex> lock_;
};

}  // namespace

std::shared_ptr<Registered> CreateTable(const TableConfig& config) {
  if (config.name.empty()) throw std::invalid_argument("a table's name must not be empty");
  TableConfig numbered = config;
  {
    const Locked registry;
    if (!registry->names.insert(config.name).second) {
      throw std::invalid_argument("name '" + config.name +
                                  "' is already used by an open table; close that table or choose "
                                  "another name");
    }
    numbered.id = registry->next++;
  }
  auto made = std::make_shared<Registered>();
  try {
    made->table = std::shared_ptr<Table>(new Table(numbered), DeleteInOwner());
  } catch (...) {
    const Locked registry;
    registry->names.erase(config.name);
    throw;
  }
  made->id = numbered.id;
  const Locked registry;
  registry->open.emplace(made->id, made);
  return made;
}

std::shared_ptr<Registered> FindTable(int64_t id) {
  const Locked registry;
  const auto it = registry->open.find(id);
  if (it != registry->open.end()) return it->second;
  const auto parents = registry->inherited.find(id);
  if (parents != registry->inherited.end()) parents->second->table->RequireOwnProcess();
  const auto closed = registry->closed.find(id);
  if (closed != registry->closed.end()) {
    throw TableClosed("table '" + closed->second.name + "': is closed");
  }
  throw std::invalid_argument("there is no table with id " + std::to_string(id));
}

void CloseTable(int64_t id) {
  std::shared_ptr<Table> leaving;
  {
    const Locked registry;
    const auto it = registry->open.find(id);
    if (it != registry->open.end()) {
      leaving = it->second->table;
      const std::string name = leaving->config().name;
      registry->closed.emplace(id, Registry::Closed{name, leaving});
      registry->names.erase(name);
      registry->open.erase(it);
    } else {
      const auto closed = registry->closed.find(id);
      if (closed != registry->closed.end()) leaving = closed->second.table.lock();
    }
  }
  if (leaving == nullptr) return;
  if (!IsBackground() && !TableMutex::InsideCall()) {
    leaving->Close();
    return;
  }
  // Python collects where it happens to run, and that may be a tier's code inside this very table.
  std::thread([leaving] { leaving->Close(); }).detach();
}

}  // namespace msrec
