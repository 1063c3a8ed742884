// SPDX-License-Identifier: Apache-2.0
//
// The messages that workers exchange in a lookup. Keys and their occurrences are sent to the
// owners, and the owners return rows and handles. A message to a worker consists of the parts of
// all lookups, in order.
#include <algorithm>
#include <cstring>
#include <string>

#include "rows/for_shards.h"
#include "util/bytes.h"
#include "workers/lookup_exchange.h"

namespace msrec {
namespace {

// Return the bytes that a lookup's keys take in a message: the count of keys, the keys, and the
// keys' occurrences.
size_t KeyMessageBytes(size_t keys) {
  constexpr size_t kKeyBytes = sizeof(int64_t) + sizeof(uint32_t);
  return sizeof(uint64_t) + Padded(keys * kKeyBytes);
}

WorkerError WrongKeys(int worker) {
  return WorkerError("worker " + std::to_string(worker) +
                     " sent keys that are not as many as it says");
}

}  // namespace

void LookupExchange::WriteKeys() {
  std::vector<size_t>& bytes = all_.send_bytes();
  size_t total = 0;
  for (const One& one : lookups_) {
    for (int r = 0; r < all_.size(); ++r) {
      bytes[r] += KeyMessageBytes(one.sent(r));
      total += KeyMessageBytes(one.sent(r));
    }
  }
  char* at = all_.memory().send.Reset(total);
  std::vector<std::vector<int64_t*>> keys(lookups_.size());
  std::vector<std::vector<uint32_t*>> occurrences(lookups_.size());
  for (int r = 0; r < all_.size(); ++r) {
    for (size_t i = 0; i < lookups_.size(); ++i) {
      const uint64_t count = lookups_[i].sent(r);
      std::memcpy(at, &count, sizeof(count));
      keys[i].push_back(reinterpret_cast<int64_t*>(at + sizeof(count)));
      occurrences[i].push_back(reinterpret_cast<uint32_t*>(keys[i].back() + count));
      at += KeyMessageBytes(count);
    }
  }
  for (size_t i = 0; i < lookups_.size(); ++i) {
    const One& one = lookups_[i];
    const KeptLookup& kept = *one.kept;
    kept.keys.Write(kept.batch, keys[i].data(), occurrences[i].data());
    // All workers get the same keys of a replicated table.
    for (int r = 1; one.replicated() && r < all_.size(); ++r) {
      std::copy_n(keys[i][0], one.sent(0), keys[i][r]);
      std::copy_n(occurrences[i][0], one.sent(0), occurrences[i][r]);
    }
  }
}

void LookupExchange::ReadKeys() {
  for (One& one : lookups_) {
    one.kept->received.assign(all_.size(), 0);
    one.kept->owned = 0;
  }
  const char* at = all_.memory().recv.data();
  std::vector<const char*> messages;
  for (int r = 0; r < all_.size(); ++r) {
    const char* const end = at + all_.received_bytes()[r];
    for (One& one : lookups_) {
      const auto left = static_cast<size_t>(end - at);
      uint64_t count = 0;
      if (left < sizeof(count)) throw WrongKeys(r);
      std::memcpy(&count, at, sizeof(count));
      // First check that the count of keys is not above the count of bytes, because KeyMessageBytes
      // would overflow for a huge count.
      if (count > left || KeyMessageBytes(count) > left) throw WrongKeys(r);
      messages.push_back(at + sizeof(count));
      one.kept->received[r] = count;
      one.kept->owned += count;
      at += KeyMessageBytes(count);
    }
    if (at != end) throw WrongKeys(r);
  }
  for (size_t i = 0; i < lookups_.size(); ++i) {
    KeptLookup& kept = *lookups_[i].kept;
    int64_t* keys = kept.owned_keys.Reset(kept.owned);
    uint32_t* occurrences = kept.occurrences.Reset(kept.owned);
    for (int r = 0; r < all_.size(); ++r) {
      const char* message = messages[r * lookups_.size() + i];
      const size_t count = kept.received[r];
      CopyBytes(keys, message, count * sizeof(int64_t));
      CopyBytes(occurrences, message + count * sizeof(int64_t), count * sizeof(uint32_t));
      keys += count;
      occurrences += count;
    }
  }
}

void LookupExchange::PlanReturn() {
  const size_t workers = all_.size();
  sent_.assign(workers, 0);
  received_.assign(workers, 0);
  rows_.assign(lookups_.size() * workers, nullptr);
  for (One& one : lookups_) {
    if (!one.replicated()) travelling_.push_back(&one);
  }
  next_rows_.reserve(travelling_.size());
  char* next = all_.memory().rows.data() + kLine;
  for (size_t r = 0; r < workers; ++r) {
    for (size_t i = 0; i < lookups_.size(); ++i) {
      One& one = lookups_[i];
      char*& begin = rows_[i * workers + r];
      if (one.replicated()) {
        begin = reinterpret_cast<char*>(one.rows());
        for (int before = 0; before < all_.rank(); ++before) {
          begin += one.kept->received[before] * one.row_bytes();
        }
        continue;
      }
      begin = next;
      const size_t coming = MessageBytes(one, one.sent(r));
      next += coming;
      received_[r] += coming;
      sent_[r] += MessageBytes(one, one.kept->received[r]);
    }
  }
  for (size_t r = 0; by_handle() && r < workers; ++r) {
    handles_sent_.push_back(lookups_[0].kept->received[r] * 2 * sizeof(int64_t));
    handles_received_.push_back(lookups_[0].sent(r) * 2 * sizeof(int64_t));
  }
}

void LookupExchange::ReturnRows() {
  if (travelling_.empty()) return;
  char* const rows = all_.memory().rows.data() + kLine;
  const char* send = nullptr;
  if (lookups_.size() == 1) {
    send = reinterpret_cast<const char*>(travelling_[0]->rows());
  } else {
    char* at = all_.memory().send.data();
    send = at;
    for (const One* one : travelling_) {
      next_rows_.push_back(reinterpret_cast<const char*>(one->rows()));
    }
    for (int r = 0; r < all_.size(); ++r) {
      for (size_t i = 0; i < travelling_.size(); ++i) {
        const size_t count = travelling_[i]->kept->received[r];
        const size_t bytes = count * travelling_[i]->row_bytes();
        const size_t padded = MessageBytes(*travelling_[i], count);
        CopyBytes(at, next_rows_[i], bytes);
        ZeroBytes(at + bytes, padded - bytes);
        next_rows_[i] += bytes;
        at += padded;
      }
    }
  }
  all_.Exchange(send, sent_, rows, received_);
}

void LookupExchange::ReturnHandles() {
  const LookupRequest& request = requests_[0];
  const KeptLookup& kept = *lookups_[0].kept;
  auto* handles = reinterpret_cast<int64_t*>(all_.memory().send.data());
  all_.Exchange(kept.handles.data(), handles_sent_, handles, handles_received_);
  Table& table = lookups_[0].here();
  table.AdoptHandles(handles, kept.keys.total());
  for (size_t i = 0; i < 2 * kept.grad_rows; i += 2) request.handles[i] = -1;
  table.AdoptHandles(request.handles, kept.grad_rows);
  const Batch& batch = kept.batch;
  ForShards(batch, [&](int s) {
    for (size_t i = batch.begin[s]; i < batch.begin[s + 1]; ++i) {
      const size_t number = kept.keys.number(batch.begin[s] + batch.inverse[i]);
      std::copy_n(handles + 2 * number, 2, request.handles + 2 * size_t{batch.pos[i]});
    }
  });
}

}  // namespace msrec
