// SPDX-License-Identifier: Apache-2.0
#include "workers/sharded_table.h"

#include <stdexcept>
#include <utility>

#include "rows/kernels.h"

namespace msrec {

ShardedTable::ShardedTable(TableExchange* exchange, std::shared_ptr<Table> table)
    : exchange_(exchange), table_(std::move(table)) {
  spare_.reserve(kMaxSpare);
}

// ---------------------------------------------------------------- lookups

int64_t ShardedTable::LookUp(const IdView& ids, const IdFilter& filter, const BagView* bags,
                             bool train, const RowsOut& out) {
  LookupRequest one{this, ids, filter, bags, out};
  LookUpOverWorkers(&one, 1, train);
  return one.ticket;
}

int64_t ShardedTable::LookupTrain(const IdView& ids, const IdFilter& filter, const RowsOut& out) {
  return LookUp(ids, filter, nullptr, true, out);
}

void ShardedTable::LookupEval(const IdView& ids, const IdFilter& filter, const RowsOut& out) {
  LookUp(ids, filter, nullptr, false, out);
}

int64_t ShardedTable::PoolTrain(const IdView& ids, const IdFilter& filter, const BagView& bags,
                                float* out) {
  return LookUp(ids, filter, &bags, true, out);
}

void ShardedTable::PoolEval(const IdView& ids, const IdFilter& filter, const BagView& bags,
                            float* out) {
  LookUp(ids, filter, &bags, false, out);
}

std::unique_ptr<KeptLookup> ShardedTable::NewLookup() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (spare_.empty()) return std::make_unique<KeptLookup>();
  std::unique_ptr<KeptLookup> lookup = std::move(spare_.back());
  spare_.pop_back();
  lookup->idle = lookup->summed = false;
  lookup->owner_ticket = 0;
  return lookup;
}

void ShardedTable::Recycle(std::unique_ptr<KeptLookup> lookup) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (spare_.size() < kMaxSpare) spare_.push_back(std::move(lookup));
}

ShardedTable::Kept::node_type ShardedTable::NewPlace() {
  Kept one;
  one.emplace(0, nullptr);
  return one.extract(one.begin());
}

int64_t ShardedTable::Keep(std::unique_ptr<KeptLookup> lookup, Kept::node_type place) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (kept_.size() >= kMaxKept) kept_.erase(kept_.begin());
  place.key() = next_ticket_;
  place.mapped() = std::move(lookup);
  kept_.insert(std::move(place));
  return next_ticket_++;
}

void ShardedTable::Forget() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ForgetLocked();
}

void ShardedTable::ForgetLocked() {
  for (auto& [ticket, lookup] : kept_) {
    if (spare_.size() < kMaxSpare) spare_.push_back(std::move(lookup));
  }
  kept_.clear();
}

std::string TableNames(const std::vector<const ShardedTable*>& tables) {
  std::string names = tables.size() == 1 ? "table " : "tables ";
  for (const ShardedTable* table : tables) {
    if (names.back() != ' ') names += ", ";
    names += "'" + table->name() + "'";
  }
  return names;
}

// ---------------------------------------------------------------- gradients and the step

void ShardedTable::Accumulate(int64_t ticket, const Gradient& grad, size_t grad_rows) {
  if (ticket == StepLookups::kFrozenTicket) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const DefaultFloatMode float_mode;
  const auto it = kept_.find(ticket);
  if (it == kept_.end() || it->second->summed) {
    throw std::runtime_error(
        "table '" + name() + "': got a gradient for a lookup it no longer knows (ticket " +
        std::to_string(ticket) +
        "): a step was taken, or gradients discarded, between the forward and backward pass");
  }
  KeptLookup& lookup = *it->second;
  if (lookup.grad_rows != grad_rows) {
    throw std::invalid_argument("table '" + name() + "': the gradient has " +
                                std::to_string(grad_rows) + " rows, its lookup had " +
                                std::to_string(lookup.grad_rows));
  }
  if (!lookup.idle) {
    const int dim = table_->dim();
    float* sums = lookup.sums.Reset(lookup.keys.total() * dim);
    lookup.keys.Sum(&lookup.batch, grad, dim, ActiveKernels(), sums);
  }
  lookup.summed = true;
}

double ShardedTable::GradientSquaredNorm() {
  if (!placement().spread()) return table_->GradientSquaredNorm();
  Collective all(exchange_, [this] { return "gradient norm of " + TableNames({this}); });
  std::vector<double> copies, parts;
  all.Try([&] {
    copies.assign(all.size(), table_->GradientSquaredNorm());
    parts.resize(all.size());
    all.send_bytes().assign(all.size(), sizeof(double));
  });
  all.Begin();
  all.Exchange(copies.data(), parts.data());
  double total = 0.0;
  for (const double part : parts) total += part;
  return total;
}

void ShardedTable::Step(const StepInput& input) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [ticket, lookup] : kept_) {
      if (!lookup->summed) continue;
      throw std::runtime_error("table '" + name() +
                               "': gradients must be exchanged between the workers before a step, "
                               "as the optimizers of mindspore_rec.optim do");
    }
  }
  table_->Step(input);
  Forget();
}

void ShardedTable::DiscardGradients() {
  Forget();
  table_->DiscardGradients();
}

}  // namespace msrec
