// SPDX-License-Identifier: Apache-2.0
#include "workers/all_rows.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>

#include "workers/remote_rows.h"

namespace msrec {
namespace {

void CopyRows(const ExportedRows& from, size_t at, size_t rows, size_t to, ExportedRows* out) {
  const size_t dim = from.dim, width = from.state_width;
  std::copy_n(from.keys.get() + at, rows, out->keys.get() + to);
  std::copy_n(from.values.get() + at * dim, rows * dim, out->values.get() + to * dim);
  std::copy_n(from.states.get() + at * width, rows * width, out->states.get() + to * width);
  std::copy_n(from.counts.get() + at, rows, out->counts.get() + to);
  std::copy_n(from.last_steps.get() + at, rows, out->last_steps.get() + to);
  std::copy_n(from.last_times.get() + at, rows, out->last_times.get() + to);
  std::copy_n(from.present.get() + at, rows, out->present.get() + to);
}

}  // namespace

std::vector<AllRows::Part> AllRows::ByOwner(const IdView& ids, const IdFilter& filter) const {
  IdFilter bounded = filter;
  bounded.vocabulary = table_.config().vocabulary;
  std::vector<Part> parts(group_.size());
  for (size_t i = 0; i < ids.size; ++i) {
    const int64_t key = ids[i];
    Part& part = parts[bounded.Drops(key) ? group_.rank() : placement().OwnerOf(key)];
    part.keys.push_back(key);
    part.at.push_back(i);
  }
  return parts;
}

std::vector<AllRows::Part> AllRows::ByChanged(const IdView& ids, const IdFilter& filter) const {
  std::vector<Part> parts = ByOwner(ids, filter);
  if (placement().replicated()) {
    for (int r = 0; r < group_.size(); ++r) {
      if (!Mine(r)) parts[r] = parts[group_.rank()];
    }
  }
  return parts;
}

std::vector<float> AllRows::Gather(const Part& part, const float* values) const {
  const size_t dim = table_.dim();
  std::vector<float> rows(part.at.size() * dim);
  for (size_t i = 0; i < part.at.size(); ++i) {
    std::copy_n(values + part.at[i] * dim, dim, rows.data() + i * dim);
  }
  return rows;
}

template <typename Fn>
void AllRows::OnWorker(int worker, const Fn& fn) {
  if (Mine(worker)) return fn(table_);
  RemoteRows remote(table_, &group_, worker);
  fn(remote);
}

template <typename Fn>
void AllRows::ForParts(const std::vector<Part>& parts, const Fn& fn) {
  for (int r = 0; r < group_.size(); ++r) {
    const Part& part = parts[r];
    if (part.keys.empty()) continue;
    OnWorker(r, [&](auto& rows) { fn(r, part, rows); });
  }
}

template <typename Fn>
void AllRows::ForReaders(const Fn& fn) {
  if (!placement().spread()) return fn(table_);
  for (int r = 0; r < group_.size(); ++r) OnWorker(r, fn);
}

void AllRows::Get(const IdView& ids, const IdFilter& filter, bool insert, float* out) {
  const size_t dim = table_.dim();
  // Check the ids first, so that a bad id throws before another worker has inserted any row.
  table_.CheckIds(ids, filter);
  std::vector<float> values;
  ForParts(insert ? ByChanged(ids, filter) : ByOwner(ids, filter),
           [&](int, const Part& part, auto& rows) {
             values.resize(part.keys.size() * dim);
             rows.Get(ViewOf(part.keys), filter, insert, values.data());
             for (size_t i = 0; i < part.at.size(); ++i) {
               std::copy_n(values.data() + i * dim, dim, out + part.at[i] * dim);
             }
           });
}

void AllRows::Put(const IdView& ids, const float* values, size_t value_rows) {
  if (value_rows != ids.size) {
    throw std::invalid_argument(
        "table '" + table_.config().name + "': keys and values must have the same length, got " +
        std::to_string(ids.size) + " keys and " + std::to_string(value_rows) + " values");
  }
  table_.CheckIds(ids, {});
  ForParts(ByChanged(ids, {}), [&](int, const Part& part, auto& rows) {
    rows.Put(ViewOf(part.keys), Gather(part, values).data(), part.keys.size());
  });
}

void AllRows::Import(const IdView& ids, const float* values) {
  table_.CheckIds(ids, {});
  ForParts(ByChanged(ids, {}), [&](int, const Part& part, auto& rows) {
    rows.Import(ViewOf(part.keys), Gather(part, values).data());
  });
}

size_t AllRows::Erase(const IdView& ids) {
  table_.CheckIds(ids, {});
  size_t erased = 0;
  ForParts(ByChanged(ids, {}), [&](int worker, const Part& part, auto& rows) {
    const size_t there = rows.Erase(ViewOf(part.keys));
    if (Mine(worker) || !placement().replicated()) erased += there;
  });
  return erased;
}

void AllRows::Contains(const IdView& ids, bool* out) {
  ForParts(ByOwner(ids, {}), [&](int, const Part& part, auto& rows) {
    const auto found = std::make_unique<bool[]>(part.keys.size());
    rows.Contains(ViewOf(part.keys), found.get());
    for (size_t i = 0; i < part.at.size(); ++i) out[part.at[i]] = found[i];
  });
}

size_t AllRows::Size() {
  size_t total = 0;
  ForReaders([&](auto& rows) { total += rows.Size(); });
  return total;
}

std::vector<int64_t> AllRows::Keys() {
  std::vector<int64_t> keys;
  ForReaders([&](auto& rows) {
    const std::vector<int64_t> some = rows.Keys();
    keys.insert(keys.end(), some.begin(), some.end());
  });
  return keys;
}

ExportedRows AllRows::Export(bool with_state) {
  std::vector<ExportedRows> parts;
  size_t total = 0;
  ForReaders([&](auto& rows) {
    parts.push_back(rows.Export(with_state));
    total += parts.back().n;
  });
  if (parts.size() == 1) return std::move(parts[0]);
  ExportedRows all = NewRows(total, parts[0].dim, parts[0].state_width);
  size_t at = 0;
  for (const ExportedRows& part : parts) {
    CopyRows(part, 0, part.n, at, &all);
    at += part.n;
  }
  return all;
}

ExportedRows AllRows::ExportKeys(const IdView& keys, bool with_state) {
  // If no rows are exported, the result still has the table's dimension and state width.
  const ExportedRows none = table_.ExportKeys({nullptr, 0, true}, with_state);
  ExportedRows all = NewRows(keys.size, none.dim, none.state_width);
  ForParts(ByOwner(keys, {}), [&](int, const Part& part, auto& rows) {
    const ExportedRows some = rows.ExportKeys(ViewOf(part.keys), with_state);
    for (size_t i = 0; i < part.at.size(); ++i) CopyRows(some, i, 1, part.at[i], &all);
  });
  return all;
}

Explanation AllRows::Explain(int64_t key) {
  Explanation explanation;
  OnWorker(static_cast<int>(placement().OwnerOf(key)),
           [&](auto& rows) { explanation = rows.Explain(key); });
  return explanation;
}

}  // namespace msrec
