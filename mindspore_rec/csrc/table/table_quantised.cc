// SPDX-License-Identifier: Apache-2.0
//
// Table: rows of int8 and int4, in place of those that can be trained.
#include <algorithm>
#include <utility>

#include "readers/quantised_rows.h"
#include "rows/kernels.h"
#include "table/table_guard.h"
#include "util/number_type.h"

namespace msrec {
namespace {

constexpr size_t kQuantisedRows = 4096;
constexpr size_t kImportRows = size_t{1} << 18;

// Return ids `first` and on, at most so many.
IdView PartOf(const IdView& ids, size_t first, size_t most) {
  IdView part = ids;
  part.data = static_cast<const char*>(ids.data) +
              first * ids.stride * (ids.is_int64 ? sizeof(int64_t) : sizeof(int32_t));
  part.size = std::min(most, ids.size - first);
  return part;
}

// Call fn(keys, first, ages) for parts of rows: memory is mapped for all keys of a part, though
// many have a row already.
template <typename Fn>
void InParts(const IdView& keys, const RowArrays& ages, const Fn& fn) {
  for (size_t first = 0; first < keys.size; first += kImportRows) {
    const IdView part = PartOf(keys, first, kImportRows);
    RowArrays of;
    of.last_steps = ages.last_steps != nullptr ? ages.last_steps + first : nullptr;
    of.last_times = ages.last_times != nullptr ? ages.last_times + first : nullptr;
    fn(part, first, of);
  }
}

}  // namespace

void Table::Quantise(int32_t bits) {
  Guard::Run(this, [&] {
    const std::string rows = "rows of int" + std::to_string(bits) + " are for serving: ";
    const auto require = [&](bool fine, const char* what) {
      if (!fine) throw std::invalid_argument(core_.Where(rows + what));
    };
    require(bits == 8 || bits == 4, "they must be of int8 or int4");
    if (core_.quantised != nullptr) {
      require(core_.quantised->layout().bits == bits, "the table has rows of another size already");
      return;
    }
    require(!core_.has_optimizer, "the table must have no optimizer");
    require(core_.cache == nullptr, "the table must have no tiers below host memory");
    require(core_.device == nullptr, "the table must have no device cache");
    require(placement().workers == 1, "the table must not be over several workers");
    require(core_.oldest_mark == 0, "nobody may record the table's changes");
    require(core_.context.is_static() || core_.Rows() == 0, "the table must be empty");
    require(core_.config.vocabulary < (int64_t{1} << 32) - 1,
            "the vocabulary must be below 2^32 - 1");
    const bool aged = core_.context.eviction.by_age() && !core_.context.is_static();
    auto made = std::make_unique<QuantisedRows>(dim(), bits, core_.config.vocabulary, aged);
    std::vector<std::unique_ptr<Shard>> empty;
    for (int s = 0; s < kNumShards; ++s) {
      empty.push_back(std::make_unique<Shard>(&core_.context, s));
    }
    WriteFirstRows(made.get());
    ForgetStep();
    core_.shards.swap(empty);
    ++core_.relayouts;
    core_.quantised = std::move(made);
  });
}

// Rows of a vocabulary that were never set are first values.
void Table::WriteFirstRows(QuantisedRows* rows) const {
  const auto vocabulary = static_cast<size_t>(core_.config.vocabulary);
  const auto dim = static_cast<size_t>(core_.config.dim);
  const NumberType type = core_.config.precision.value;
  std::vector<int64_t> keys;
  std::vector<float> values(dim * std::min(vocabulary, kQuantisedRows)), kept(dim);
  for (size_t first = 0; first < vocabulary; first += kQuantisedRows) {
    keys.resize(std::min(kQuantisedRows, vocabulary - first));
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i] = static_cast<int64_t>(first + i);
      float* value = values.data() + i * dim;
      core_.context.kernels->initialize(core_.context.initializer, keys[i], core_.config.dim,
                                        value);
      Narrow(type, value, dim, kept.data());
      Widen(type, kept.data(), dim, value);
    }
    rows->Upsert({keys.data(), keys.size(), true}, values.data(), nullptr, nullptr);
  }
}

int32_t Table::quantised_bits() {
  return Guard::Run(
      this, [&] { return core_.quantised == nullptr ? 0 : core_.quantised->layout().bits; });
}

void Table::LookUpQuantised(const IdView& ids, const IdFilter& filter, const BagView* bags,
                            const float* unknown, const RowsOut& out) const {
  core_.CheckIds(ids, filter);
  IdFilter full = filter;
  full.vocabulary = core_.config.vocabulary;
  const AgeLimit limit = Ages();
  if (bags != nullptr) return core_.quantised->Pool(ids, full, *bags, unknown, &limit, out.floats);
  if (out.halves == nullptr) {
    return core_.quantised->Lookup(ids, full, unknown, &limit, out.floats);
  }
  // Numbers of int8 and int4 rows are float32, which are rounded.
  const auto dim = static_cast<size_t>(core_.config.dim);
  std::vector<float> rows(std::min(kQuantisedRows, ids.size) * ids.stride * dim);
  for (size_t first = 0; first < ids.size; first += kQuantisedRows) {
    const IdView part = PartOf(ids, first, kQuantisedRows);
    core_.quantised->Lookup(part, full, unknown, &limit, rows.data());
    for (size_t i = 0; i < part.size; ++i) {
      const size_t at = i * ids.stride * dim;
      Narrow(NumberType::kBfloat16, rows.data() + at, dim,
             out.halves + first * ids.stride * dim + at);
    }
  }
}

void Table::PutQuantised(const IdView& keys, const float* values, const RowArrays& ages) {
  if (values == nullptr) RefuseQuantised("importing rows without values");
  const auto dim = static_cast<size_t>(core_.config.dim);
  InParts(keys, ages, [&](const IdView& part, size_t first, const RowArrays& of) {
    core_.quantised->Upsert(part, values + first * dim, of.last_steps, of.last_times);
  });
}

void Table::ImportCodes(const IdView& keys, const uint8_t* rows, size_t width,
                        const RowArrays& ages) {
  Guard::Run(this, [&] {
    const QuantisedRows* const quantised = core_.quantised.get();
    const size_t bytes = quantised == nullptr ? 0 : 4 + quantised->layout().code_bytes();
    if (quantised == nullptr || width != bytes) {
      throw std::invalid_argument(
          core_.Where("rows must have " + std::to_string(bytes) + " bytes each, as this table's " +
                      (quantised == nullptr
                           ? "would if it had rows of int8 or int4"
                           : "rows of int" + std::to_string(quantised->layout().bits) + " have") +
                      ", got " + std::to_string(width)));
    }
    core_.CheckKeys(keys, "keys");
    InParts(keys, ages, [&](const IdView& part, size_t first, const RowArrays& of) {
      core_.quantised->UpsertCodes(part, rows + first * bytes, of.last_steps, of.last_times);
    });
  });
}

size_t Table::MetadataBytes() const {
  return core_.quantised == nullptr ? sizeof(RowMeta) : core_.quantised->layout().header();
}

AgeLimit Table::Ages() const { return {core_.context.eviction, core_.context.horizon}; }

ExportedRows Table::ExportQuantised(const IdView& keys, bool with_state) const {
  const AgeLimit limit = Ages();
  ExportedRows out = NewExport(core_.context.layout, keys.size, with_state);
  const std::vector<float> zeros(core_.config.dim);
  core_.quantised->Lookup(keys, {}, zeros.data(), &limit, out.values.get());
  std::fill_n(out.states.get(), out.n * out.state_width, 0.0f);
  std::fill_n(out.counts.get(), out.n, 0u);
  for (size_t i = 0; i < out.n; ++i) {
    out.keys[i] = keys[i];
    out.present[i] = core_.quantised->Contains(keys[i], &limit);
    const RowAges ages = out.present[i] ? core_.quantised->AgesOf(keys[i]) : RowAges{};
    out.last_steps[i] = ages.last_step;
    out.last_times[i] = ages.last_time;
  }
  return out;
}

void Table::ExportQuantisedParts(bool with_state,
                                 const std::function<void(ExportedRows)>& fn) const {
  const AgeLimit limit = Ages();
  const std::vector<int64_t> keys = core_.quantised->Keys(&limit);
  for (size_t first = 0; first < keys.size(); first += kQuantisedRows) {
    const size_t n = std::min(kQuantisedRows, keys.size() - first);
    fn(ExportQuantised({keys.data() + first, n, true}, with_state));
  }
}

void Table::RefuseQuantised(const char* what) const {
  if (core_.quantised == nullptr) return;
  throw std::invalid_argument(core_.Where(
      std::string(what) + " is not possible: its rows are of int" +
      std::to_string(core_.quantised->layout().bits) + ", which are for serving and not trained"));
}

}  // namespace msrec
