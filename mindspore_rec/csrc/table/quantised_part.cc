// SPDX-License-Identifier: Apache-2.0
#include "table/quantised_part.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "readers/quantised_rows.h"
#include "rows/kernels.h"
#include "util/number_type.h"

namespace msrec {
namespace {

constexpr size_t kQuantisedRows = 4096;
constexpr size_t kImportRows = size_t{1} << 18;

// Return at most `most` ids, beginning with the id at index `first`.
IdView PartOf(const IdView& ids, size_t first, size_t most) {
  IdView part = ids;
  part.data = static_cast<const char*>(ids.data) +
              first * ids.stride * (ids.is_int64 ? sizeof(int64_t) : sizeof(int32_t));
  part.size = std::min(most, ids.size - first);
  return part;
}

// Divide the keys into parts and call fn(keys, first, ages) once per part, where `first` is the
// index of the part's first key. Memory is reserved for all keys of a part, even if many keys
// already have a row. Dividing the keys into parts limits the reserved memory.
template <typename Fn>
void InParts(const TableCore& core, const IdView& keys, const RowArrays& ages, const Fn& fn) {
  for (size_t first = 0; first < keys.size; first += kImportRows) {
    const IdView part = PartOf(keys, first, kImportRows);
    RowArrays of;
    of.last_steps = ages.last_steps != nullptr ? ages.last_steps + first : nullptr;
    of.last_times = ages.last_times != nullptr ? ages.last_times + first : nullptr;
    try {
      fn(part, first, of);
    } catch (const std::bad_alloc&) {
      if (first == 0) throw;
      throw OutOfMemory(core.Where("out of memory; the first " + std::to_string(first) + " of " +
                                   std::to_string(keys.size) +
                                   " rows are set, and the other rows are as they were"));
    }
  }
}

}  // namespace

// Writes the initial value of every row. Requires: the table has a vocabulary.
void QuantisedPart::WriteFirstRows(QuantisedRows* rows) const {
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

void QuantisedPart::LookUp(const IdView& ids, const IdFilter& filter, const BagView* bags,
                           const float* unknown, const RowsOut& out) const {
  core_.CheckIds(ids, filter);
  IdFilter full = filter;
  full.vocabulary = core_.config.vocabulary;
  const AgeLimit limit = Ages();
  if (bags != nullptr) return core_.quantised->Pool(ids, full, *bags, unknown, &limit, out.floats);
  if (out.halves == nullptr) {
    return core_.quantised->Lookup(ids, full, unknown, &limit, out.floats);
  }
  // Rows of int8 and int4 are read as float32 numbers. The numbers are then rounded to the output's
  // type.
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

void QuantisedPart::Put(const IdView& keys, const float* values, const RowArrays& ages) {
  if (values == nullptr) Refuse("importing rows without values");
  const auto dim = static_cast<size_t>(core_.config.dim);
  InParts(core_, keys, ages, [&](const IdView& part, size_t first, const RowArrays& of) {
    core_.quantised->Upsert(part, values + first * dim, of.last_steps, of.last_times);
  });
}

void QuantisedPart::PutCodes(const IdView& keys, const uint8_t* rows, size_t width,
                             const RowArrays& ages) {
  InParts(core_, keys, ages, [&](const IdView& part, size_t first, const RowArrays& of) {
    core_.quantised->UpsertCodes(part, rows + first * width, of.last_steps, of.last_times);
  });
}

size_t QuantisedPart::MetadataBytes() const {
  return core_.quantised == nullptr ? sizeof(RowMeta) : core_.quantised->layout().header();
}

AgeLimit QuantisedPart::Ages() const { return {core_.context.eviction, core_.context.horizon}; }

ExportedRows QuantisedPart::Export(const IdView& keys, bool with_state) const {
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

void QuantisedPart::ExportParts(bool with_state,
                                const std::function<void(ExportedRows)>& fn) const {
  const AgeLimit limit = Ages();
  const std::vector<int64_t> keys = core_.quantised->Keys(&limit);
  for (size_t first = 0; first < keys.size(); first += kQuantisedRows) {
    const size_t n = std::min(kQuantisedRows, keys.size() - first);
    fn(Export({keys.data() + first, n, true}, with_state));
  }
}

void QuantisedPart::Refuse(const char* what) const {
  if (core_.quantised == nullptr) return;
  throw std::invalid_argument(core_.Where(
      std::string(what) + " is not possible: its rows are of int" +
      std::to_string(core_.quantised->layout().bits) + ", which are for serving and not trained"));
}

}  // namespace msrec
