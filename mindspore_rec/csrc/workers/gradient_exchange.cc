// SPDX-License-Identifier: Apache-2.0
//
// Exchange of gradients: each worker sums its gradients by key, and sends the sums to the owners of
// the rows. The owners add the sums of all workers in the order of the workers' ranks.
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

#include "util/bfloat16.h"
#include "util/bytes.h"
#include "util/for_blocks.h"
#include "workers/sharded_table.h"

namespace msrec {
namespace {

constexpr size_t kBlockFloats = 1 << 16;  // of one task of the pool

// In a message, a GradientHeader precedes the gradients of one lookup.
struct GradientHeader {
  uint64_t table;  // its place among the operation's tables
  int64_t ticket;
  uint64_t rows;
};

}  // namespace

class GradientExchange {
 public:
  GradientExchange(const std::vector<ShardedTable*>& tables, const std::vector<bool>& narrow)
      : tables_(tables), narrow_(narrow), all_(&tables[0]->exchange(), [&] {
          return "exchange of gradients of " + TableNames({tables.begin(), tables.end()});
        }) {}

  void Run(const std::function<void()>& check);

 private:
  size_t Floats(size_t table, size_t rows) const { return rows * tables_[table]->table().dim(); }
  size_t Bytes(size_t table, size_t rows) const {
    return Padded(Floats(table, rows) * (narrow_[table] ? sizeof(uint16_t) : sizeof(float)));
  }
  // Call fn(table, ticket, lookup) for each lookup that has a gradient.
  template <typename Fn>
  void ForEachLookup(const Fn& fn);
  size_t Send(int worker, char* at);
  void Receive();
  void Accumulate();

  const std::vector<ShardedTable*>& tables_;
  const std::vector<bool>& narrow_;
  Collective all_;
  // The received gradients, indexed by table, lookup and worker; an entry is null if the worker has
  // sent no gradients.
  std::vector<std::map<int64_t, std::vector<const char*>>> parts_;
  Buffer<float> whole_;
};

template <typename Fn>
void GradientExchange::ForEachLookup(const Fn& fn) {
  for (size_t t = 0; t < tables_.size(); ++t) {
    for (auto& [ticket, lookup] : tables_[t]->kept_) {
      if (lookup->summed) fn(t, ticket, lookup.get());
    }
  }
}

// Writes the message for worker `worker` to `at`, unless `at` is null; returns the message's size.
size_t GradientExchange::Send(int worker, char* at) {
  const float weight = all_.group().weight();
  size_t total = 0;
  ForEachLookup([&](size_t t, int64_t ticket, KeptLookup* lookup) {
    if (lookup->idle) return;
    const bool replicated = tables_[t]->placement().replicated();
    const size_t rows = lookup->keys.count(replicated ? 0 : worker);
    if (rows == 0) return;
    if (at != nullptr) {
      const GradientHeader header{t, ticket, rows};
      std::memcpy(at + total, &header, sizeof(header));
      size_t before = 0;
      for (int p = 0; !replicated && p < worker; ++p) before += lookup->keys.count(p);
      const float* from = lookup->sums.data() + Floats(t, before);
      char* to = at + total + sizeof(header);
      ForBlocks(Floats(t, rows), kBlockFloats, [&](size_t begin, size_t end) {
        if (narrow_[t]) {
          auto* half = reinterpret_cast<uint16_t*>(to);
          for (size_t i = begin; i < end; ++i) half[i] = ToBfloat16(weight * from[i]);
        } else {
          auto* full = reinterpret_cast<float*>(to);
          for (size_t i = begin; i < end; ++i) full[i] = weight * from[i];
        }
      });
    }
    total += sizeof(GradientHeader) + Bytes(t, rows);
  });
  return total;
}

WorkerError TooShort(int worker) {
  return WorkerError("worker " + std::to_string(worker) + " sent gradients that are cut off");
}

void GradientExchange::Receive() {
  parts_.resize(tables_.size());
  ForEachLookup([&](size_t t, int64_t ticket, KeptLookup*) {
    parts_[t][ticket].assign(all_.size(), nullptr);
  });
  const char* at = all_.memory().recv.data();
  for (int r = 0; r < all_.size(); ++r) {
    const char* const end = at + all_.received_bytes()[r];
    while (at < end) {
      GradientHeader header;
      const auto left = static_cast<size_t>(end - at);
      if (left < sizeof(header)) throw TooShort(r);
      std::memcpy(&header, at, sizeof(header));
      const auto& kept = tables_.at(header.table)->kept_;
      const auto lookup = kept.find(header.ticket);
      if (lookup == kept.end() || lookup->second->received[r] != header.rows) {
        throw WorkerError("worker " + std::to_string(r) + " sent " + std::to_string(header.rows) +
                          " gradients of a lookup of table '" + tables_[header.table]->name() +
                          "' that sent other keys here");
      }
      // The number of rows equals the number of keys that this worker has recorded, so the size
      // does not overflow.
      if (left - sizeof(header) < Bytes(header.table, header.rows)) throw TooShort(r);
      auto& of_lookup = parts_[header.table][header.ticket];
      of_lookup.resize(all_.size(), nullptr);
      of_lookup[r] = at + sizeof(header);
      at += sizeof(header) + Bytes(header.table, header.rows);
    }
  }
}

void GradientExchange::Accumulate() {
  for (size_t t = 0; t < tables_.size(); ++t) {
    for (const auto& [ticket, parts] : parts_[t]) {
      const KeptLookup& lookup = *tables_[t]->kept_.at(ticket);
      float* to = whole_.Reset(Floats(t, lookup.owned));
      for (int r = 0; r < all_.size(); ++r) {
        const size_t floats = Floats(t, lookup.received[r]);
        const char* from = parts[r];
        ForBlocks(floats, kBlockFloats, [&](size_t begin, size_t end) {
          if (from == nullptr) {
            ZeroBytes(to + begin, (end - begin) * sizeof(float));
          } else if (narrow_[t]) {
            const auto* half = reinterpret_cast<const uint16_t*>(from);
            for (size_t i = begin; i < end; ++i) to[i] = FromBfloat16(half[i]);
          } else {
            CopyBytes(to + begin, from + begin * sizeof(float), (end - begin) * sizeof(float));
          }
        });
        to += floats;
      }
      tables_[t]->table().Accumulate(lookup.owner_ticket, whole_.data(), lookup.owned);
    }
  }
}

void GradientExchange::Run(const std::function<void()>& check) {
  std::vector<std::unique_lock<std::mutex>> locks;
  all_.Try([&] {
    if (check) check();
    locks.reserve(tables_.size());
    for (ShardedTable* table : tables_) locks.emplace_back(table->mutex_);
    size_t total = 0;
    for (int r = 0; r < all_.size(); ++r) total += all_.send_bytes()[r] = Send(r, nullptr);
    char* at = all_.memory().send.Reset(total);
    for (int r = 0; r < all_.size(); ++r) at += Send(r, at);
  });
  try {
    all_.Begin();
    all_.Exchange(all_.memory().send.data(), all_.memory().recv.data());
    all_.Try([&] {
      Receive();
      Accumulate();
    });
    all_.Agree();
  } catch (...) {
    for (std::unique_lock<std::mutex>& lock : locks) lock.unlock();
    for (ShardedTable* table : tables_) table->DiscardGradients();
    throw;
  }
  for (ShardedTable* table : tables_) table->ForgetLocked();
}

void ExchangeGradients(const std::vector<ShardedTable*>& tables, const std::vector<bool>& narrow,
                       const std::function<void()>& check) {
  GradientExchange(tables, narrow).Run(check);
}

}  // namespace msrec
