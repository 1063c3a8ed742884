// SPDX-License-Identifier: Apache-2.0
#include "table/core/table_core.h"

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>

#include "policy/check.h"
#include "rows/kernels.h"
#include "util/hash.h"

namespace msrec {
namespace {

// Return the row for unknown keys as dim floats. The row is `given`; if `given` is empty, the row
// is the default, which the caller passes as `otherwise`.
std::vector<float> UnknownRow(const TableCore& core, const std::vector<float>& given,
                              const char* argument, const std::vector<float>& otherwise) {
  const std::vector<float>& row = given.empty() ? otherwise : given;
  const auto dim = static_cast<size_t>(core.config.dim);
  if (row.size() == 1 || row.size() == dim) {
    std::vector<float> full = row.size() == dim ? row : std::vector<float>(dim, row[0]);
    // Round the row for unknown keys to the table's value type, so that this row can be sent and
    // stored like other rows.
    std::vector<float> kept(dim);
    Narrow(core.config.precision.value, full.data(), dim, kept.data());
    Widen(core.config.precision.value, kept.data(), dim, full.data());
    return full;
  }
  throw std::invalid_argument(core.Where(std::string(argument) + " must have 1 or " +
                                         std::to_string(core.config.dim) + " floats, got " +
                                         std::to_string(row.size())));
}

void CheckPrecision(const TableCore& core) {
  const RowPrecision& precision = core.config.precision;
  if (precision.state == NumberType::kFloat16 || precision.accumulator == NumberType::kFloat16) {
    throw std::invalid_argument(
        core.Where("state_dtype and accumulator_dtype must be float32 or bfloat16, got float16, "
                   "whose range is too small for squares of gradients"));
  }
}

}  // namespace

TableCore::TableCore(const TableConfig& given) : config(given), mutex(Where("")) {
  if (given.dim < 1 || given.dim > kMaxDim) {
    throw std::invalid_argument(
        Where("dim must be in [1, 8192], got " + std::to_string(given.dim)));
  }
  if (given.vocabulary < 0 || given.vocabulary > (int64_t{1} << 35)) {
    throw std::invalid_argument(
        Where("vocabulary must be in [0, 2^35], got " + std::to_string(given.vocabulary)));
  }
  if (given.placement.workers > Placement::kMostWorkers) {
    throw std::invalid_argument(Where("must be on at most " +
                                      std::to_string(Placement::kMostWorkers) + " workers, got " +
                                      std::to_string(given.placement.workers)));
  }
  CheckAdmission(given.admission, Where(""));
  CheckEviction(given.eviction, Where(""));
  config.initializer.seed = Mix64(given.seed ^ HashBytes(given.name.data(), given.name.size()));
  context.initializer = config.initializer;
  context.admission = given.admission;
  context.eviction = given.eviction;
  context.vocabulary = given.vocabulary;
  context.placement = given.placement;
  context.kernels = &ActiveKernels();
  CheckPrecision(*this);
  TakeLayout(LayoutFor(context.rule));
  unknown_row = UnknownRow(*this, given.unknown_value, "unknown_value", {0.0f});
  serving_unknown_row =
      UnknownRow(*this, given.serving_unknown_value, "serving_unknown_value", unknown_row);
  try {
    for (int s = 0; s < kNumShards; ++s) shards.push_back(std::make_unique<Shard>(&context, s));
    lookups.ReserveSpare();
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(Where("out of memory while creating it"));
  }
}

TableCore::~TableCore() = default;

RowLayout TableCore::LayoutFor(const Rule& rule) const {
  const RowPrecision& precision = config.precision;
  RowLayout layout;
  layout.dim = config.dim;
  layout.state_width = StateWidth(rule, context.eviction, config.dim);
  layout.scored = context.eviction.scored();
  layout.value_type = precision.value;
  layout.state_type = rule.KeepsSums() ? precision.accumulator : precision.state;
  // If rows have no optimizer state, the state type does not matter.
  if (layout.optimizer_width() == 0) layout.state_type = NumberType::kFloat32;
  return layout;
}

void TableCore::TakeLayout(const RowLayout& layout) {
  context.layout = layout;
  context.row_kernels = &context.kernels->RowsOf(layout.value_type, layout.state_type);
}

uint64_t TableCore::Structure() const {
  uint64_t version = relayouts;
  for (const auto& shard : shards) version += shard->stats().removed();
  return version;
}

void TableCore::RequireOptimizer() const {
  if (has_optimizer) return;
  throw NoOptimizer(Where(
      "is looked up in training mode but no optimizer covers it, so it would never learn; pass "
      "net.trainable_params() to an optimizer of mindspore_rec.optim, or freeze the table with "
      "requires_grad=False, or call set_train(False) on the network"));
}

void TableCore::RefuseWithoutTime() const {
  throw std::invalid_argument(
      Where("evicts by age in seconds (max_idle_seconds=" +
            std::to_string(context.eviction.max_idle_seconds) +
            ") but has no event time; name the timestamp column of the batches, or call "
            "set_event_time(seconds) before the step, or evict by max_idle_steps"));
}

void TableCore::RequireTrainable() const {
  RequireOptimizer();
  if (context.eviction.max_idle_seconds >= 0 && context.time == 0) RefuseWithoutTime();
}

void TableCore::CheckIds(const IdView& ids, const IdFilter& filter) const {
  if (!context.is_static() || config.outside_zeros) return;
  for (size_t i = 0; i < ids.size; ++i) {
    const int64_t id = ids[i];
    if ((id >= 0 && id < config.vocabulary) || (filter.has_padding && id == filter.padding_key)) {
      continue;
    }
    throw std::invalid_argument(Where("id " + std::to_string(id) + " at position " +
                                      std::to_string(i) + " is outside the vocabulary [0, " +
                                      std::to_string(config.vocabulary) +
                                      "); for ids without a vocabulary, such as hashes, there is "
                                      "HashEmbeddingLookup"));
  }
}

void TableCore::CheckKeys(const IdView& keys, const char* argument) const {
  for (size_t i = 0; context.is_static() && i < keys.size; ++i) {
    if (keys[i] >= 0 && keys[i] < config.vocabulary) continue;
    throw std::invalid_argument(Where(std::string(argument) + "[" + std::to_string(i) + "] is " +
                                      std::to_string(keys[i]) + ", outside the vocabulary [0, " +
                                      std::to_string(config.vocabulary) + ")"));
  }
}

void TableCore::RefuseUnshared(const char* what) const {
  throw std::invalid_argument(
      Where(std::string(what) +
            " is not possible with a device cache out of the host's memory; use plain lookups and "
            "the optimizers' step in the graph, or make the table without device_rows"));
}

void TableCore::RequireWrittenBack() const {
  if (device == nullptr || device->shared()) return;
  if (!device->moving.empty() || !device->Dirty().empty()) {
    throw std::runtime_error(
        Where("rows have their newest value on the device only: call device.sync() first"));
  }
}

void TableCore::ReserveChanges(const std::vector<int64_t>& keys, bool all) {
  if (oldest_mark == 0) return;
  size_t more[kNumShards] = {};
  for (const int64_t key : keys) ++more[ShardNumber(key)];
  if (all && context.is_static()) {
    for (int64_t key = 0; key < config.vocabulary; ++key) {
      if (Owns(key)) ++more[ShardNumber(key)];
    }
  }
  for (int s = 0; s < kNumShards; ++s) {
    shards[s]->changes().Reserve(more[s] + (all ? shards[s]->size() : 0));
  }
}

bool TableCore::KeepsDigest() const {
  return std::all_of(shards.begin(), shards.end(),
                     [](const auto& shard) { return shard->digests().kept(); });
}

void TableCore::DropDigest() noexcept {
  for (const auto& shard : shards) shard->digests().Drop();
}

size_t TableCore::OwnedVocabulary() const {
  if (!context.placement.spread()) return static_cast<size_t>(config.vocabulary);
  if (owned_vocabulary < 0) {
    owned_vocabulary = 0;
    for (int64_t key = 0; key < config.vocabulary; ++key) owned_vocabulary += Owns(key);
  }
  return static_cast<size_t>(owned_vocabulary);
}

uint64_t TableCore::Inserted() const {
  uint64_t total = 0;
  for (const auto& shard : shards) total += shard->stats().inserted;
  return total;
}

size_t TableCore::Rows() const {
  size_t total = 0;
  for (const auto& shard : shards) total += shard->size();
  return total;
}

}  // namespace msrec
