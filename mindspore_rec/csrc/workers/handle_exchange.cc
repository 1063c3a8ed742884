// SPDX-License-Identifier: Apache-2.0
//
// Training by handles with several workers: handles and gradients are sent to the workers that
// created the handles.
#include <cstring>
#include <stdexcept>

#include "util/bytes.h"
#include "workers/sharded_table.h"

namespace msrec {
namespace {

void RequireSpread(const ShardedTable& table) {
  if (table.placement().spread()) return;
  throw std::invalid_argument("table '" + table.name() +
                              "': placement must be 'sharded' or 'owner' to train by handle, got "
                              "'replicated'");
}

}  // namespace

void ShardedTable::LookupWithHandles(const IdView& ids, const IdFilter& filter, float* out,
                                     int64_t* handles) {
  RequireSpread(*this);
  LookupRequest one{this, ids, filter, nullptr, out, 0, handles};
  LookUpOverWorkers(&one, 1, true);
}

// A message to a worker consists of the worker's handles, followed by the gradients of these
// handles.
void ShardedTable::AccumulateByHandle(const int64_t* handles, size_t n, const float* grad) {
  RequireSpread(*this);
  Collective all(exchange_, [this] { return "gradients by handle of " + TableNames({this}); });
  const size_t dim = static_cast<size_t>(table_->dim());
  const size_t bytes_each = 2 * sizeof(int64_t) + dim * sizeof(float);
  std::vector<size_t>& bytes = all.send_bytes();
  const bool idle = all.group().idle();
  all.Try([&] {
    table_->CheckHandles(handles, n);
    std::vector<size_t> counts(all.size(), 0);
    for (size_t i = 0; i < n && !idle; ++i) {
      if (!RowHandles::NoRow(handles + 2 * i)) ++counts[RowHandles::WorkerOf(handles + 2 * i)];
    }
    size_t total = 0;
    std::vector<char*> handle_at(all.size()), grad_at(all.size());
    for (int r = 0; r < all.size(); ++r) {
      bytes[r] = Padded(counts[r] * bytes_each);
      total += bytes[r];
    }
    char* at = all.memory().send.Reset(total);
    for (int r = 0; r < all.size(); ++r) {
      handle_at[r] = at;
      grad_at[r] = at + counts[r] * 2 * sizeof(int64_t);
      at += bytes[r];
    }
    const float weight = all.group().weight();
    for (size_t i = 0; i < n && !idle; ++i) {
      if (RowHandles::NoRow(handles + 2 * i)) continue;
      const uint32_t r = RowHandles::WorkerOf(handles + 2 * i);
      std::memcpy(handle_at[r], handles + 2 * i, 2 * sizeof(int64_t));
      handle_at[r] += 2 * sizeof(int64_t);
      auto* to = reinterpret_cast<float*>(grad_at[r]);
      for (size_t j = 0; j < dim; ++j) to[j] = weight * grad[i * dim + j];
      grad_at[r] += dim * sizeof(float);
    }
  });
  all.Begin();
  all.Exchange(all.memory().send.data(), all.memory().recv.data());
  all.Try([&] {
    std::vector<int64_t> given;
    std::vector<float> grads;
    const char* at = all.memory().recv.data();
    for (int r = 0; r < all.size(); ++r) {
      const size_t count = all.received_bytes()[r] / bytes_each;
      const auto* from = reinterpret_cast<const int64_t*>(at);
      given.insert(given.end(), from, from + 2 * count);
      const auto* floats = reinterpret_cast<const float*>(from + 2 * count);
      grads.insert(grads.end(), floats, floats + count * dim);
      at += all.received_bytes()[r];
    }
    table_->AdoptHandles(given.data(), given.size() / 2);
    table_->AccumulateByHandle(given.data(), given.size() / 2, grads.data());
  });
  try {
    all.Agree();
  } catch (...) {
    DiscardGradients();  // others have added theirs
    throw;
  }
}

}  // namespace msrec
