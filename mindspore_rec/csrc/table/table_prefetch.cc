// SPDX-License-Identifier: Apache-2.0
//
// Table: batches that are to be looked up soon. A thread of the table makes their keys unique,
// reads what is below without holding the table's mutex, and puts it into host memory.
#include <cxxabi.h>

#include <algorithm>
#include <chrono>

#include "table/table_guard.h"
#include "util/background.h"
#include "util/float_mode.h"
#include "util/thread_pool.h"

namespace msrec {

int64_t Table::Prefetch(const IdView& ids) {
  return Guard::Run(this, [&] {
    if (below_ == nullptr) {
      throw std::invalid_argument(core_.Where("has no tier below host memory to prefetch from"));
    }
    if (below_->fetches.size() >= Pins::kMostBatches) {
      throw std::invalid_argument(
          core_.Where("has " + std::to_string(below_->fetches.size()) +
                      " prefetched batches; release them with prefetch_done"));
    }
    auto fetch = std::make_shared<Fetch>();
    fetch->ids.resize(ids.size);
    for (size_t i = 0; i < ids.size; ++i) fetch->ids[i] = ids[i];
    if (!below_->thread.joinable()) {
      try {
        below_->thread = StartThread("read ahead", [this] { PrefetchMain(); });
      } catch (const std::runtime_error& error) {
        throw std::runtime_error(core_.Where(error.what()));
      }
    }
    fetch->number = below_->next_fetch++;
    below_->fetches.emplace(fetch->number, fetch);
    below_->queued.push_back(fetch);
    below_->wake.notify_all();
    return fetch->number;
  });
}

double Table::PrefetchWait(int64_t number) {
  TableMutex::Hold hold(&core_.mutex);
  if (core_.closed) throw TableClosed(core_.Where("is closed"));
  const auto found = below_ == nullptr ? std::map<int64_t, std::shared_ptr<Fetch>>::iterator()
                                       : below_->fetches.find(number);
  if (below_ == nullptr || found == below_->fetches.end()) {
    throw std::invalid_argument(core_.Where("has no prefetched batch " + std::to_string(number)));
  }
  const std::shared_ptr<Fetch> fetch = found->second;
  if (fetch->ready && fetch->error == nullptr) return 0.0;
  const auto begin = std::chrono::steady_clock::now();
  ++below_->waiters;
  below_->ready.wait(*hold.lock(), [&] { return core_.closed || fetch->ready; });
  if (--below_->waiters == 0 && core_.closed) below_->ready.notify_all();  // Close waits for it
  if (core_.closed) throw TableClosed(core_.Where("is closed"));
  const double waited =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  below_->prefetch_wait += waited;
  if (fetch->error != nullptr) {
    below_->fetches.erase(number);
    std::rethrow_exception(fetch->error);
  }
  return waited;
}

void Table::PrefetchDone(int64_t number) {
  Guard::Run(this, [&] {
    if (below_ == nullptr || number < 1 || number >= below_->next_fetch) {
      throw std::invalid_argument(core_.Where("has no prefetched batch " + std::to_string(number)));
    }
    ReleaseFetches(number);
  });
}

void Table::ReleaseFetches(int64_t number) {
  auto& fetches = below_->fetches;
  for (auto it = fetches.begin(); it != fetches.end() && it->first <= number;) {
    it->second->cancelled = true;
    it = fetches.erase(it);
  }
  auto& queued = below_->queued;
  while (!queued.empty() && queued.front()->number <= number) queued.pop_front();
  // Pins are released up to a number; batches that were given up early are behind it.
  const auto released = static_cast<uint16_t>(number);
  const uint16_t ahead = released - core_.context.pins.released;
  if (ahead < 0x8000) core_.context.pins.released = released;
}

void Table::StopPrefetching(std::unique_lock<std::mutex>* lock) {
  if (below_ == nullptr) return;
  below_->stop = true;
  below_->wake.notify_all();
  below_->ready.notify_all();
  below_->ready.wait(*lock, [&] { return below_->waiters == 0; });
  if (!below_->thread.joinable()) return;
  std::thread thread = std::move(below_->thread);
  lock->unlock();
  thread.join();
  lock->lock();
}

void Table::PrefetchMain() {
  YieldToOperators();
  const DefaultFloatMode float_mode;
  const ThreadPool::Alone alone;  // operators need the workers
  Batch batch;
  TableMutex::Hold hold(&core_.mutex);
  std::unique_lock<std::mutex>& lock = *hold.lock();
  for (;;) {
    below_->wake.wait(lock, [&] { return below_->stop || !below_->queued.empty(); });
    if (below_->stop) return;
    const std::shared_ptr<Fetch> fetch = below_->queued.front();
    below_->queued.pop_front();
    try {
      FetchRows(&lock, fetch.get(), &batch);
    } catch (abi::__forced_unwind&) {
      throw;  // Python ends a thread so that asks for its lock while it shuts down
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      fetch->error = std::current_exception();
    }
    fetch->ready = true;
    below_->ready.notify_all();
  }
}

void Table::FetchRows(std::unique_lock<std::mutex>* lock, Fetch* fetch, Batch* batch) {
  IdFilter filter;
  filter.vocabulary = core_.config.vocabulary;
  lock->unlock();
  batch->Partition(IdView{fetch->ids.data(), fetch->ids.size(), true}, filter);
  for (int s = 0; s < kNumShards; ++s) batch->MakeUnique(s);
  lock->lock();
  if (below_->stop || fetch->cancelled) return;

  const auto number = static_cast<uint16_t>(fetch->number);
  std::vector<uint32_t> missing;
  for (int s = 0; s < kNumShards; ++s) {
    core_.shards[s]->PinPresent(batch, Hold::kNeed, number, &missing);
  }
  std::vector<int64_t> keys;
  for (const uint32_t i : missing) keys.push_back(batch->key[i]);
  PushErased();
  Queue();
  const std::shared_ptr<WriteBehind> queue = below_->queue;
  // Changes from here on are noted: what is read may be older.
  fetch->overtaken.clear();
  fetch->sorted = 0;
  const size_t stride = core_.context.layout.stride();
  std::vector<char> rows(keys.size() * stride);
  std::unique_ptr<bool[]> found(new bool[keys.size()]());
  if (below_->rows > 0 && !keys.empty()) {
    lock->unlock();
    OnTier([&] { queue->Read(keys.data(), keys.size(), rows.data(), found.get()); });
    lock->lock();
    if (below_->stop || fetch->cancelled) return;
    // A row that came up meanwhile and left the table again is not noted yet: what was read of it
    // would bring it back.
    PushErased();
  }

  std::vector<size_t> coming;
  for (size_t j = 0; j < keys.size(); ++j) {
    if (!found[j]) {
      fetch->absent.push_back(keys[j]);
    } else if (!fetch->Overtaken(keys[j]) && !core_.ShardFor(keys[j]).Holds(keys[j])) {
      coming.push_back(j);
    }
  }
  std::sort(fetch->absent.begin(), fetch->absent.end());
  coming.resize(std::min(coming.size(), MakeRoom(coming.size(), true)));
  size_t rows_of[kNumShards] = {};
  for (const size_t j : coming) ++rows_of[ShardOf(keys[j], HashKey(keys[j]), false)];
  for (int s = 0; s < kNumShards; ++s) core_.shards[s]->Reserve(rows_of[s]);
  for (const size_t j : coming) {
    if (core_.ShardFor(keys[j]).BringUp(rows.data() + j * stride, Hold::kNeed, number) == nullptr) {
      continue;
    }
    --below_->rows;
    ++below_->prefetched;
  }
}

std::vector<std::pair<uint64_t, size_t>> Table::RecentLookups() {
  return Guard::Run(this, [&] { return core_.lookups.recent(); });
}

}  // namespace msrec
