// SPDX-License-Identifier: Apache-2.0
#include "table/cache/prefetcher.h"

#include <cxxabi.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "util/background.h"
#include "util/float_mode.h"
#include "util/thread_pool.h"

namespace msrec {

int64_t Prefetcher::Add(const IdView& ids) {
  if (tiers_.fetches().size() >= Pins::kMostBatches) {
    throw std::invalid_argument(upper_.Where("has " + std::to_string(tiers_.fetches().size()) +
                                             " prefetched batches; release them with "
                                             "prefetch_done"));
  }
  auto fetch = std::make_shared<Fetch>();
  fetch->ids.resize(ids.size);
  for (size_t i = 0; i < ids.size; ++i) fetch->ids[i] = ids[i];
  StartThreads();
  fetch->number = next_number_++;
  tiers_.fetches().Add(fetch);
  queued_.push_back(fetch);
  wake_.notify_all();
  return fetch->number;
}

void Prefetcher::StartThreads() {
  for (std::thread& thread : threads_) {
    if (thread.joinable()) continue;
    try {
      thread = StartThread("read ahead", [this] { Main(); });
    } catch (const std::runtime_error& error) {
      if (&thread != &threads_[0]) return;  // the first thread reads all batches
      throw std::runtime_error(upper_.Where(error.what()));
    }
  }
}

double Prefetcher::Wait(int64_t number, std::unique_lock<std::mutex>* lock) {
  const std::shared_ptr<Fetch> fetch = tiers_.fetches().Find(number);
  if (fetch == nullptr) {
    throw std::invalid_argument(upper_.Where("has no prefetched batch " + std::to_string(number)));
  }
  if (fetch->ready && fetch->error == nullptr) return 0.0;
  const auto begin = std::chrono::steady_clock::now();
  ++waiters_;
  ready_.wait(*lock, [&] { return upper_.closed() || fetch->ready; });
  if (--waiters_ == 0 && upper_.closed()) ready_.notify_all();  // Stop waits for it
  if (upper_.closed()) throw TableClosed(upper_.Where("is closed"));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  waited_ += seconds;
  if (fetch->error != nullptr) {
    tiers_.fetches().Erase(number);
    std::rethrow_exception(fetch->error);
  }
  return seconds;
}

void Prefetcher::Release(int64_t number) {
  if (number < 1 || number >= next_number_) {
    throw std::invalid_argument(upper_.Where("has no prefetched batch " + std::to_string(number)));
  }
  tiers_.fetches().ReleaseUpTo(number);
  while (!queued_.empty() && queued_.front()->number <= number) queued_.pop_front();
  upper_.ReleaseUpTo(number);
}

void Prefetcher::Stop(std::unique_lock<std::mutex>* lock) {
  stop_ = true;
  wake_.notify_all();
  ready_.notify_all();
  ready_.wait(*lock, [&] { return waiters_ == 0; });
  std::array<std::thread, kThreads> threads = std::move(threads_);
  lock->unlock();
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
  lock->lock();
}

void Prefetcher::Main() {
  YieldToOperators();
  const DefaultFloatMode float_mode;
  const ThreadPool::Alone alone;  // this thread works alone, because operators need the worker
                                  // threads
  Batch batch;
  TableMutex::Hold hold(upper_.mutex());
  std::unique_lock<std::mutex>& lock = *hold.lock();
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || !queued_.empty(); });
    if (stop_) return;
    const std::shared_ptr<Fetch> fetch = queued_.front();
    queued_.pop_front();
    try {
      FetchRows(&lock, fetch.get(), &batch);
#ifdef __GLIBCXX__
    } catch (abi::__forced_unwind&) {
      throw;  // Python ends a thread in this way if the thread requests the GIL during Python's
              // shutdown
#endif
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      fetch->error = std::current_exception();
    }
    fetch->ready = true;
    ready_.notify_all();
  }
}

void Prefetcher::FetchRows(std::unique_lock<std::mutex>* lock, Fetch* fetch, Batch* batch) {
  IdFilter filter;
  filter.vocabulary = upper_.context().vocabulary;
  lock->unlock();
  batch->Partition(IdView{fetch->ids.data(), fetch->ids.size(), true}, filter);
  for (int s = 0; s < kNumShards; ++s) batch->MakeUnique(s);
  lock->lock();
  if (stop_ || fetch->cancelled) return;

  const auto number = static_cast<uint16_t>(fetch->number);
  std::vector<uint32_t> missing;
  upper_.FindAhead(batch, number, &missing);
  std::vector<int64_t> keys;
  for (const uint32_t i : missing) keys.push_back(batch->key[i]);
  tiers_.EraseDeparted();
  const std::shared_ptr<WriteBehind> queue = tiers_.SharedQueue();
  // From here on, record which rows change, because a row may change while this thread reads the
  // lower tiers.
  fetch->invalidated.clear();
  fetch->sorted = 0;
  std::vector<char> rows(keys.size() * upper_.context().layout.stride());
  std::unique_ptr<bool[]> found(new bool[keys.size()]());
  if (tiers_.rows() > 0 && !keys.empty()) {
    lock->unlock();
    tiers_.OnTier([&] { queue->Read(keys.data(), keys.size(), rows.data(), found.get()); });
    lock->lock();
    if (stop_ || fetch->cancelled) return;
    // While this thread read the lower tiers, a row may have been promoted and then removed from
    // the table. EraseDeparted records the removal. If the removal were not recorded, promoting the
    // outdated copy would insert the removed row again.
    tiers_.EraseDeparted();
  }
  PromoteRead(fetch, keys, rows, found.get());
}

void Prefetcher::PromoteRead(Fetch* fetch, const std::vector<int64_t>& keys,
                             const std::vector<char>& rows, const bool* found) {
  const auto number = static_cast<uint16_t>(fetch->number);
  std::vector<size_t> kept;
  for (size_t j = 0; j < keys.size(); ++j) {
    if (!found[j]) {
      fetch->absent.push_back(keys[j]);
      continue;
    }
    // A lookup or another batch may have promoted the row while this thread read the lower tiers.
    const bool held = upper_.HoldAhead(keys[j], number);
    if (!held && !fetch->Invalidated(keys[j])) kept.push_back(j);
  }
  std::sort(fetch->absent.begin(), fetch->absent.end());
  kept.resize(std::min(kept.size(), host_.MakeRoom(kept.size(), true)));
  int64_t promoted = 0;
  const auto note = [&] {
    tiers_.AddRows(-promoted);
    promoted_ += static_cast<uint64_t>(promoted);
  };
  try {
    upper_.PromoteAhead(keys, rows, kept, number, &promoted);
  } catch (...) {
    note();
    throw;
  }
  note();
}

}  // namespace msrec
