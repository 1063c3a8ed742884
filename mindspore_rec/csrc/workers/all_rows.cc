// SPDX-License-Identifier: Apache-2.0
#include "workers/all_rows.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "workers/row_service.h"

namespace msrec {
namespace {

IdView View(const std::vector<int64_t>& keys) { return {keys.data(), keys.size(), true}; }

void PutKeys(const std::vector<int64_t>& keys, MessageWriter* out) {
  out->Put(static_cast<uint64_t>(keys.size()));
  out->PutBytes(keys.data(), keys.size() * sizeof(int64_t));
}

void Append(const ExportedRows& from, size_t at, size_t rows, size_t to, ExportedRows* out) {
  const size_t dim = from.dim, width = from.state_width;
  std::copy_n(from.keys.get() + at, rows, out->keys.get() + to);
  std::copy_n(from.values.get() + at * dim, rows * dim, out->values.get() + to * dim);
  std::copy_n(from.states.get() + at * width, rows * width, out->states.get() + to * width);
  std::copy_n(from.counts.get() + at, rows, out->counts.get() + to);
  std::copy_n(from.last_steps.get() + at, rows, out->last_steps.get() + to);
  std::copy_n(from.last_times.get() + at, rows, out->last_times.get() + to);
  std::copy_n(from.present.get() + at, rows, out->present.get() + to);
}

// Return room for n rows of the form of others.
ExportedRows RoomLike(const ExportedRows& like, size_t n) {
  ExportedRows rows;
  rows.n = n;
  rows.dim = like.dim;
  rows.state_width = like.state_width;
  rows.keys.reset(new int64_t[n]);
  rows.values.reset(new float[n * rows.dim]);
  rows.states.reset(new float[n * rows.state_width]);
  rows.counts.reset(new uint32_t[n]);
  rows.last_steps.reset(new uint32_t[n]);
  rows.last_times.reset(new uint32_t[n]);
  rows.present.reset(new bool[n]);
  return rows;
}

}  // namespace

std::vector<AllRows::Part> AllRows::ByOwner(const IdView& ids, const IdFilter& filter) const {
  const int64_t vocabulary = table_.config().vocabulary;
  std::vector<Part> parts(group_.size());
  for (size_t i = 0; i < ids.size; ++i) {
    const int64_t key = ids[i];
    const bool dropped = (filter.has_padding && key == filter.padding_key) ||
                         (vocabulary > 0 && (key < 0 || key >= vocabulary));
    Part& part = parts[dropped ? group_.rank() : placement().OwnerOf(key)];
    part.keys.push_back(key);
    part.at.push_back(i);
  }
  return parts;
}

std::vector<AllRows::Part> AllRows::ByChanged(const IdView& ids) const {
  std::vector<Part> parts = ByOwner(ids, {});
  if (placement().replicated()) {
    for (int r = 0; r < group_.size(); ++r) {
      if (!Mine(r)) parts[r] = parts[group_.rank()];
    }
  }
  return parts;
}

std::vector<int> AllRows::Readers() const {
  if (!placement().spread()) return {group_.rank()};
  std::vector<int> all(group_.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::string AllRows::Ask(int worker, RowRequest what, const std::string& arguments) const {
  // A tag of its own: several threads may ask at a time.
  static std::atomic<uint32_t> next{0};
  constexpr int kTags = Communicator::kMaxTag - RowService::kFirstReplyTag;
  const int tag = RowService::kFirstReplyTag + static_cast<int>(next++ % kTags);
  const std::string& name = table_.config().name;
  MessageWriter request;
  request.Put(static_cast<int32_t>(tag));
  request.Put(what);
  request.PutString(name);
  request.PutBytes(arguments.data(), arguments.size());
  Communicator& channel = group_.channel(Channel::kService);
  const ExchangeScope scope("rows by key", name.c_str());
  channel.Send(worker, RowService::kRequestTag, request.message().data(), request.message().size());
  WorkerMessage reply = channel.Receive(worker, tag);
  MessageReader in(reply.data);
  const auto status = in.Take<RowReply>();
  if (status == RowReply::kDone) return reply.data.substr(sizeof status);
  const std::string error = "worker " + std::to_string(worker) + ": " + in.TakeString();
  if (status == RowReply::kInvalid) throw std::invalid_argument(error);
  throw std::runtime_error(error);
}

void AllRows::Get(const IdView& ids, const IdFilter& filter, bool insert, float* out) {
  const size_t dim = table_.dim();
  // Ids that this worker refuses are refused before another worker has inserted any.
  table_.CheckIds(ids, filter);
  const bool changes_all = insert && placement().replicated();
  const std::vector<Part> parts = changes_all ? ByChanged(ids) : ByOwner(ids, filter);
  std::vector<float> values;
  for (int r = 0; r < group_.size(); ++r) {
    const Part& part = parts[r];
    if (part.keys.empty()) continue;
    values.resize(part.keys.size() * dim);
    if (Mine(r)) {
      table_.Get(View(part.keys), filter, insert, values.data());
    } else {
      MessageWriter arguments;
      PutKeys(part.keys, &arguments);
      const auto what = insert ? RowRequest::kInsert : RowRequest::kFind;
      const std::string reply = Ask(r, what, arguments.message());
      MessageReader in(reply);
      std::memcpy(values.data(), in.TakeBytes(values.size() * sizeof(float)),
                  values.size() * sizeof(float));
    }
    for (size_t i = 0; i < part.at.size(); ++i) {
      std::copy_n(values.data() + i * dim, dim, out + part.at[i] * dim);
    }
  }
}

void AllRows::Put(const IdView& ids, const float* values, size_t value_rows) {
  if (value_rows != ids.size) {
    throw std::invalid_argument(
        "table '" + table_.config().name + "': keys and values must have the same length, got " +
        std::to_string(ids.size) + " keys and " + std::to_string(value_rows) + " values");
  }
  table_.CheckIds(ids, {});
  const size_t dim = table_.dim();
  const std::vector<Part> parts = ByChanged(ids);
  std::vector<float> mine;
  for (int r = 0; r < group_.size(); ++r) {
    const Part& part = parts[r];
    if (part.keys.empty()) continue;
    mine.resize(part.keys.size() * dim);
    for (size_t i = 0; i < part.at.size(); ++i) {
      std::copy_n(values + part.at[i] * dim, dim, mine.data() + i * dim);
    }
    if (Mine(r)) {
      table_.Put(View(part.keys), mine.data(), part.keys.size());
      continue;
    }
    MessageWriter arguments;
    PutKeys(part.keys, &arguments);
    arguments.PutBytes(mine.data(), mine.size() * sizeof(float));
    Ask(r, RowRequest::kPut, arguments.message());
  }
}

void AllRows::Import(const IdView& ids, const float* values) {
  table_.CheckIds(ids, {});
  const size_t dim = table_.dim();
  std::vector<Part> parts = ByChanged(ids);
  std::vector<float> mine;
  for (int r = 0; r < group_.size(); ++r) {
    Part& part = parts[r];
    if (part.keys.empty()) continue;
    mine.resize(part.keys.size() * dim);
    for (size_t i = 0; i < part.at.size(); ++i) {
      std::copy_n(values + part.at[i] * dim, dim, mine.data() + i * dim);
    }
    if (Mine(r)) {
      RowArrays rows;
      rows.keys = part.keys.data();
      rows.values = mine.data();
      table_.Import(part.keys.size(), rows, 0);
      continue;
    }
    MessageWriter arguments;
    PutKeys(part.keys, &arguments);
    arguments.PutBytes(mine.data(), mine.size() * sizeof(float));
    Ask(r, RowRequest::kImport, arguments.message());
  }
}

size_t AllRows::Erase(const IdView& ids) {
  table_.CheckIds(ids, {});
  const std::vector<Part> parts = ByChanged(ids);
  size_t erased = 0;
  for (int r = 0; r < group_.size(); ++r) {
    if (parts[r].keys.empty()) continue;
    if (Mine(r)) {
      erased += table_.Erase(View(parts[r].keys));
      continue;
    }
    MessageWriter arguments;
    PutKeys(parts[r].keys, &arguments);
    const std::string reply = Ask(r, RowRequest::kErase, arguments.message());
    MessageReader in(reply);
    const auto there = in.Take<uint64_t>();
    if (!placement().replicated()) erased += there;
  }
  return erased;
}

void AllRows::Contains(const IdView& ids, bool* out) {
  const std::vector<Part> parts = ByOwner(ids, {});
  for (int r = 0; r < group_.size(); ++r) {
    const Part& part = parts[r];
    const size_t n = part.keys.size();
    if (n == 0) continue;
    const std::unique_ptr<bool[]> found(new bool[n]);
    if (Mine(r)) {
      table_.Contains(View(part.keys), found.get());
    } else {
      MessageWriter arguments;
      PutKeys(part.keys, &arguments);
      const std::string reply = Ask(r, RowRequest::kContains, arguments.message());
      MessageReader in(reply);
      std::memcpy(found.get(), in.TakeBytes(n), n);
    }
    for (size_t i = 0; i < n; ++i) out[part.at[i]] = found[i];
  }
}

size_t AllRows::Size() {
  size_t total = 0;
  for (const int r : Readers()) {
    if (Mine(r)) {
      total += table_.Size();
      continue;
    }
    const std::string reply = Ask(r, RowRequest::kSize, {});
    MessageReader in(reply);
    total += in.Take<uint64_t>();
  }
  return total;
}

std::vector<int64_t> AllRows::Keys() {
  std::vector<int64_t> keys;
  for (const int r : Readers()) {
    if (Mine(r)) {
      const std::vector<int64_t> mine = table_.Keys();
      keys.insert(keys.end(), mine.begin(), mine.end());
      continue;
    }
    const std::string reply = Ask(r, RowRequest::kKeys, {});
    MessageReader in(reply);
    const size_t n = in.left() / sizeof(int64_t);
    const auto theirs = in.TakeArray<int64_t>(n);
    keys.insert(keys.end(), theirs.get(), theirs.get() + n);
  }
  return keys;
}

ExportedRows AllRows::Export(bool with_state) {
  std::vector<ExportedRows> parts;
  size_t total = 0;
  for (const int r : Readers()) {
    if (Mine(r)) {
      parts.push_back(table_.Export(with_state));
    } else {
      MessageWriter arguments;
      arguments.Put(with_state);
      const std::string reply = Ask(r, RowRequest::kExport, arguments.message());
      MessageReader in(reply);
      parts.push_back(ReadRows(&in));
    }
    total += parts.back().n;
  }
  if (parts.size() == 1) return std::move(parts[0]);
  ExportedRows all = RoomLike(parts[0], total);
  size_t at = 0;
  for (const ExportedRows& part : parts) {
    Append(part, 0, part.n, at, &all);
    at += part.n;
  }
  return all;
}

ExportedRows AllRows::ExportKeys(const IdView& keys, bool with_state) {
  const std::vector<Part> parts = ByOwner(keys, {});
  ExportedRows all;
  bool made = false;
  for (int r = 0; r < group_.size(); ++r) {
    const Part& part = parts[r];
    if (part.keys.empty() && !Mine(r)) continue;
    ExportedRows rows;
    if (Mine(r)) {
      rows = table_.ExportKeys(View(part.keys), with_state);
    } else {
      MessageWriter arguments;
      arguments.Put(with_state);
      PutKeys(part.keys, &arguments);
      const std::string reply = Ask(r, RowRequest::kExportKeys, arguments.message());
      MessageReader in(reply);
      rows = ReadRows(&in);
    }
    if (!made) all = RoomLike(rows, keys.size);
    made = true;
    for (size_t i = 0; i < part.at.size(); ++i) Append(rows, i, 1, part.at[i], &all);
  }
  return all;
}

Explanation AllRows::Explain(int64_t key) {
  const int owner = static_cast<int>(placement().OwnerOf(key));
  if (Mine(owner)) return table_.Explain(key);
  MessageWriter arguments;
  arguments.Put(key);
  const std::string reply = Ask(owner, RowRequest::kExplain, arguments.message());
  MessageReader in(reply);
  return in.Take<Explanation>();
}

std::optional<AllRows> RowsOverWorkers(Table* table) {
  WorkerGroup* const group = TheGroup();
  if (group == nullptr || group->size() == 1 || table->placement().workers == 1) return {};
  return AllRows(table, group);
}

}  // namespace msrec
