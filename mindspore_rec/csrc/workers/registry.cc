// SPDX-License-Identifier: Apache-2.0
#include "workers/registry.h"

#include <pthread.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "util/background.h"
#include "util/hash.h"
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
  using Name = std::pair<int64_t, std::string>;  // with its scope
  std::map<Name, std::vector<int64_t>> names;    // open tables of a name, the newest last
  int64_t next = 1;                              // number of the next table

  // The tables of the parent process, which a forked child must not use. The child may create
  // tables with the names of the parent's tables.
  std::map<int64_t, std::shared_ptr<Registered>> inherited;
  uint64_t forks = ForkCount();
};

Registry& TheRegistry() {
  static Registry* const registry = [] {
    auto* made = new Registry;  // operators may run until the very end of the process
    // If another thread registers a table during a fork, the child's copy of the registry is still
    // complete and unlocked.
    pthread_atfork([] { TheRegistry().mutex.lock(); }, [] { TheRegistry().mutex.unlock(); },
                   [] { TheRegistry().mutex.unlock(); });
    return made;
  }();
  return *registry;
}

[[maybe_unused]] const Registry& made_at_the_start = TheRegistry();

// Gives access to this process's registry, and locks the registry until the object is destroyed.
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

// Returns the id of the table with number `number` in this process. Compiled graphs contain ids,
// and MindSpore's compile cache and `mindspore.export` store graphs in files. In another process, a
// graph must not find a table of another name, so an id contains a hash of the name. The same
// program makes the same ids in each process, because otherwise the compile cache would be of no
// use. The low bits differ from table to table, because handles of rows contain only these bits.
int64_t TableId(const std::string& name, int64_t number) {
  constexpr int kNumberBits = 23;
  const uint64_t hash = HashBytes(name.data(), name.size()) >> (kNumberBits + 2);
  return static_cast<int64_t>(hash << kNumberBits) + number;
}

// A table that is still being created or has been closed needs no `replaced` flag.
void SetReplaced(const Locked& registry, int64_t id, bool replaced) {
  const auto it = registry->open.find(id);
  if (it != registry->open.end()) it->second->replaced = replaced;
}

// In a forked child, the map of names does not contain the parent's tables.
void FreeName(const Locked& registry, const TableConfig& config, int64_t id) {
  const auto it = registry->names.find({config.scope, config.name});
  if (it == registry->names.end()) return;
  std::vector<int64_t>& holders = it->second;
  holders.erase(std::remove(holders.begin(), holders.end(), id), holders.end());
  if (holders.empty()) {
    registry->names.erase(it);
  } else {
    SetReplaced(registry, holders.back(), false);
  }
}

}  // namespace

std::shared_ptr<Registered> CreateTable(const TableConfig& config, bool replace) {
  if (config.name.empty()) throw std::invalid_argument("a table's name must not be empty");
  TableConfig numbered = config;
  {
    const Locked registry;
    std::vector<int64_t>& holders = registry->names[{config.scope, config.name}];
    if (!holders.empty() && !replace) {
      throw NameTaken(
          "name '" + config.name +
          "' is already used by an open table; close that table or choose another name");
    }
    holders.reserve(holders.size() + 1);
    numbered.id = TableId(config.name, registry->next++);
    if (!holders.empty()) SetReplaced(registry, holders.back(), true);
    holders.push_back(numbered.id);
  }
  std::shared_ptr<Registered> made;
  try {
    made = std::make_shared<Registered>();
    made->table = std::shared_ptr<Table>(new Table(numbered), DeleteInOwner());
    made->id = numbered.id;
    const Locked registry;
    registry->open.emplace(made->id, made);
    // True if another thread has created a newer table with the same name in the meantime.
    made->replaced = registry->names[{config.scope, config.name}].back() != made->id;
  } catch (...) {
    const Locked registry;
    FreeName(registry, config, numbered.id);
    throw;
  }
  return made;
}

void CheckNotReplaced(const Registered& registered) {
  if (!registered.replaced) return;
  const std::string& name = registered.table->config().name;
  throw TableReplaced(
      "table '" + name +
      "': a newer table has this name, so this one cannot be used. Use the "
      "newer network. To use this one again, close the newer: `for table in "
      "mindspore_rec.tables_of(newer_net): table.close()`. To use both, give each table another "
      "name=");
}

void CheckRowsGiven(const Registered& registered) {
  if (!registered.rows_missing.load(std::memory_order_relaxed)) return;
  const std::string& name = registered.table->config().name;
  throw std::runtime_error(
      "table '" + name +
      "': its rows were not in the checkpoint that was loaded: mindspore.save_checkpoint and "
      "ModelCheckpoint write no tables. Save with mindspore_rec.save_checkpoint or RecCheckpoint "
      "and load with mindspore_rec.load_checkpoint; keep_rows() of the table goes on with the rows "
      "that it has now");
}

std::shared_ptr<Registered> FindTable(int64_t id) {
  const Locked registry;
  const auto it = registry->open.find(id);
  if (it != registry->open.end()) {
    CheckNotReplaced(*it->second);
    return it->second;
  }
  const auto parents = registry->inherited.find(id);
  if (parents != registry->inherited.end()) parents->second->table->RequireOwnProcess();
  const auto closed = registry->closed.find(id);
  if (closed != registry->closed.end()) {
    throw TableClosed("table '" + closed->second.name + "': is closed");
  }
  throw std::invalid_argument(
      "there is no table with id " + std::to_string(id) +
      " in this process: the graph was compiled in another process. Export networks with "
      "mindspore_rec.serving.mindir, and clear MindSpore's compile cache if the tables changed");
}

std::shared_ptr<Table> FindTableByName(const std::string& name) {
  const Locked registry;
  const auto holders = registry->names.find({0, name});
  if (holders == registry->names.end() || holders->second.empty()) return nullptr;
  const auto it = registry->open.find(holders->second.back());
  return it == registry->open.end() ? nullptr : it->second->table;
}

void CloseTable(int64_t id) {
  std::shared_ptr<Table> leaving;
  {
    const Locked registry;
    const auto it = registry->open.find(id);
    if (it != registry->open.end()) {
      leaving = it->second->table;
      const TableConfig& config = leaving->config();
      registry->closed.emplace(id, Registry::Closed{config.name, leaving});
      registry->open.erase(it);
      FreeName(registry, config, id);
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
  // Python's garbage collection may run at any time, even in a tier's code during a call on this
  // table.
  try {
    StartThread("close a table", [leaving] { leaving->Close(); }).detach();
  } catch (const std::runtime_error&) {
    // If no thread can be started, the table's rows stay in memory for the rest of the process. Do
    // not call Close() on this thread, because Close() could wait forever.
    static_cast<void>(new std::shared_ptr<Table>(leaving));
  }
}

}  // namespace msrec
