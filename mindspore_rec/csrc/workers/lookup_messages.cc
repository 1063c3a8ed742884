// SPDX-License-Identifier: Apache-2.0
//
// The messages of lookups over workers: keys and their occurrences to the owners, rows and handles
// back. A message to a worker is that of the first lookup, that of the second, ...
#include <algorithm>
#include <cstring>

#include "table/for_shards.h"
#include "util/bytes.h"
#include "workers/lookup_exchange.h"

namespace msrec {
namespace {

// Return the size of a lookup's keys to a worker: their number, the keys, their occurrences.
size_t MessageBytes(size_t keys) {
  constexpr size_t kKeyBytes = sizeof(int64_t) + sizeof(uint32_t);
  return sizeof(uint64_t) + Padded(keys * kKeyBytes);
}

}  // namespace

std::vector<size_t> LookupExchange::WriteKeys() {
  std::vector<size_t> bytes(all_.size(), 0);
  size_t total = 0;
  for (const One& one : lookups_) {
    for (int r = 0; r < all_.size(); ++r) {
      bytes[r] += MessageBytes(one.sent(r));
      total += MessageBytes(one.sent(r));
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
      at += MessageBytes(count);
    }
  }
  for (size_t i = 0; i < lookups_.size(); ++i) {
    const One& one = lookups_[i];
    const KeptLookup& kept = *one.kept;
    kept.keys.Write(kept.batch, keys[i].data(), occurrences[i].data());
    // Everybody gets the same keys of a table that everybody has.
    for (int r = 1; one.replicated() && r < all_.size(); ++r) {
      std::copy_n(keys[i][0], one.sent(0), keys[i][r]);
      std::copy_n(occurrences[i][0], one.sent(0), occurrences[i][r]);
    }
  }
  return bytes;
}

void LookupExchange::ReadKeys() {
  for (One& one : lookups_) {
    one.kept->received.assign(all_.size(), 0);
    one.kept->owned = 0;
  }
  const char* at = all_.memory().recv.data();
  std::vector<const char*> messages;
  for (int r = 0; r < all_.size(); ++r) {
    for (One& one : lookups_) {
      uint64_t count = 0;
      std::memcpy(&count, at, sizeof(count));
      messages.push_back(at + sizeof(count));
      one.kept->received[r] = count;
      one.kept->owned += count;
      at += MessageBytes(count);
    }
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

void LookupExchange::ReturnRows() {
  std::vector<size_t> sent(all_.size(), 0), received(all_.size(), 0);
  std::vector<const One*> travelling;
  float* rows = reinterpret_cast<float*>(all_.memory().rows.data()) + kLineFloats;
  float* next = rows;
  rows_.assign(lookups_.size() * all_.size(), nullptr);
  for (One& one : lookups_) {
    if (!one.replicated()) travelling.push_back(&one);
  }
  for (int r = 0; r < all_.size(); ++r) {
    for (size_t i = 0; i < lookups_.size(); ++i) {
      One& one = lookups_[i];
      float*& begin = rows_[i * all_.size() + r];
      if (one.replicated()) {
        begin = one.rows();
        for (int before = 0; before < all_.rank(); ++before) {
          begin += one.kept->received[before] * one.dim();
        }
        continue;
      }
      begin = next;
      next += one.sent(r) * one.dim();
      received[r] += one.sent(r) * one.dim() * sizeof(float);
      sent[r] += one.kept->received[r] * one.dim() * sizeof(float);
    }
  }
  if (travelling.empty()) return;
  const char* send = nullptr;
  if (travelling.size() == 1) {
    send = reinterpret_cast<const char*>(travelling[0]->rows());
  } else {
    char* at = all_.memory().send.data();
    send = at;
    std::vector<const float*> from;
    for (const One* one : travelling) from.push_back(one->rows());
    for (int r = 0; r < all_.size(); ++r) {
      for (size_t i = 0; i < travelling.size(); ++i) {
        const size_t floats = travelling[i]->kept->received[r] * travelling[i]->dim();
        CopyBytes(at, from[i], floats * sizeof(float));
        from[i] += floats;
        at += floats * sizeof(float);
      }
    }
  }
  all_.Exchange(send, sent, rows, received);
}

void LookupExchange::ReturnHandles() {
  const LookupRequest& request = requests_[0];
  const KeptLookup& kept = *lookups_[0].kept;
  std::vector<size_t> sent, received;
  for (int r = 0; r < all_.size(); ++r) {
    sent.push_back(kept.received[r] * 2 * sizeof(int64_t));
    received.push_back(lookups_[0].sent(r) * 2 * sizeof(int64_t));
  }
  auto* handles = reinterpret_cast<int64_t*>(all_.memory().send.data());
  all_.Exchange(kept.handles.data(), sent, handles, received);
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
