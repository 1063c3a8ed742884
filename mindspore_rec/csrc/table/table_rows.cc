// SPDX-License-Identifier: Apache-2.0
//
// Table: rows by key, and whole tables in and out.
#include <algorithm>
#include <cstring>
#include <utility>

#include "table/for_shards.h"
#include "table/table_guard.h"
#include "util/headroom.h"

namespace msrec {

// ---------------------------------------------------------------- rows by key

void Table::Get(const IdView& ids, const IdFilter& filter, bool insert, float* out) {
  Guard::Run(this, [&] {
    const CallPins pins(this);
    auto batch = core_.lookups.NewBatch(ids, filter);
    if (insert && core_.trainable) {
      Resolve(batch.get(), &Shard::FindOrInsert, core_.unknown_row.data(), out);
    } else {
      Resolve(batch.get(), &Shard::FindOnly, core_.serving_unknown_row.data(), out);
    }
    core_.lookups.Recycle(std::move(batch));
  });
}

void Table::Put(const IdView& ids, const float* values, size_t value_rows) {
  Guard::Run(this, [&] {
    if (value_rows != ids.size) {
      throw std::invalid_argument(core_.Where("keys and values must have the same length, got " +
                                              std::to_string(ids.size) + " keys and " +
                                              std::to_string(value_rows) + " values"));
    }
    const size_t dim = core_.config.dim;
    // A key counts once a call, and of a key put twice the last value stays: where the call is done
    // in blocks, no key may be in two.
    std::vector<int64_t> keys;
    std::vector<size_t> last;
    IdView distinct = ids;
    if (below_ != nullptr) {
      KeySet set;
      set.Reset(ids.size);
      keys.resize(ids.size);
      last.resize(ids.size);
      for (size_t i = 0; i < ids.size; ++i) last[set.FindOrAdd(ids[i], keys.data())] = i;
      keys.resize(set.size());
      distinct = {keys.data(), keys.size(), true};
    }
    core_.CheckIds(ids, {});
    ForEachBlock(distinct, "keys", "stored", [&](const IdView& some, size_t begin) {
      const CallPins pins(this);
      auto batch = core_.lookups.NewBatch(some, {});
      Resolve(batch.get(), &Shard::FindOrPut, nullptr, nullptr);
      ForShards(*batch, [&](int s) {
        const size_t first = batch->begin[s];
        for (size_t i = 0; core_.device != nullptr && i < batch->unique[s]; ++i) {
          core_.device->Forget(s, batch->key[first + i]);
        }
        for (size_t i = first; i < batch->begin[s + 1]; ++i) {  // in order of positions
          char* row = batch->row[first + batch->inverse[i]];
          const size_t p = begin + batch->pos[i];
          std::memcpy(Value(row), values + (below_ != nullptr ? last[p] : p) * dim,
                      dim * sizeof(float));
        }
      });
      core_.lookups.Recycle(std::move(batch));
    });
  });
}

size_t Table::Erase(const IdView& ids) {
  return Guard::Run(this, [&] {
    if (core_.context.is_static()) {
      throw std::invalid_argument(
          core_.Where("is static: its keys are the vocabulary and cannot be erased"));
    }
    size_t total = 0;
    ForEachBlock(ids, "keys", "erased", [&](const IdView& some, size_t) {
      const CallPins pins(this);
      auto batch = core_.lookups.NewBatch(some, {});
      if (core_.context.tiered) BringUp(batch.get(), Purpose::kChange);
      for (int s = 0; !batch->probed && s < kNumShards; ++s) {
        core_.shards[s]->ReserveNotes(batch->begin[s + 1] - batch->begin[s]);
      }
      RequireHeadroom(HeadroomForKeys(batch->n));
      size_t erased[kNumShards] = {};
      ForShards(*batch, [&](int s) {
        const size_t first = batch->begin[s];
        // Erasing a key again finds nothing.
        const size_t keys = batch->probed ? batch->unique[s] : batch->begin[s + 1] - first;
        for (size_t i = 0; i < keys; ++i)
          erased[s] += core_.shards[s]->Erase(batch->key[first + i]);
      });
      core_.lookups.Recycle(std::move(batch));
      for (const size_t n : erased) total += n;
    });
    return total;
  });
}

void Table::Contains(const IdView& ids, bool* out) {
  Guard::Run(this, [&] {
    if (core_.context.is_static()) {
      for (size_t i = 0; i < ids.size; ++i)
        out[i] = ids[i] >= 0 && ids[i] < core_.config.vocabulary;
      return;
    }
    std::vector<char> visitors;
    const KeyedRows rows = RowsOf(ids, &visitors);
    for (size_t i = 0; i < ids.size; ++i) out[i] = rows[i].second != nullptr;
  });
}

size_t Table::Size() {
  return Guard::Run(this, [&] {
    SweepDue();
    if (below_ != nullptr) Queue();  // which tells what is below
    return AllRows();
  });
}

std::vector<int64_t> Table::Keys() {
  return Guard::Run(this, [&] {
    SweepDue();
    std::vector<int64_t> keys;
    WalkAll([&](const KeyedRows& rows) {
      for (const auto& each : rows) keys.push_back(each.first);
    });
    return keys;
  });
}

// ---------------------------------------------------------------- whole table

ExportedRows Table::NewExport(size_t n, bool with_state) const {
  ExportedRows out;
  out.n = n;
  out.dim = core_.config.dim;
  out.state_width = with_state ? core_.context.layout.state_width : 0;
  const size_t dim = out.dim;
  const size_t width = out.state_width;
  out.keys.reset(new int64_t[out.n]);
  out.values.reset(new float[out.n * dim]);
  out.states.reset(new float[out.n * width]);
  out.counts.reset(new uint32_t[out.n]);
  out.last_steps.reset(new uint32_t[out.n]);
  out.last_times.reset(new uint32_t[out.n]);
  out.present.reset(new bool[out.n]);
  return out;
}

// Copies rows to places `from` and on of out, as far as there is room.
void Table::Pack(const KeyedRows& rows, size_t from, ExportedRows* to) const {
  ExportedRows& out = *to;
  const size_t n = std::min(rows.size(), out.n - std::min(from, out.n));
  const size_t dim = out.dim;
  const size_t width = out.state_width;
  constexpr size_t kBlock = 4096;
  ThreadPool::Global().ParallelFor(
      static_cast<int64_t>((n + kBlock - 1) / kBlock), [&](int64_t block) {
        const size_t last = std::min(n, (static_cast<size_t>(block) + 1) * kBlock);
        for (size_t j = block * kBlock; j < last; ++j) {
          const char* row = rows[j].second;
          const size_t i = from + j;
          out.keys[i] = rows[j].first;
          out.present[i] = row != nullptr;
          out.counts[i] = row != nullptr ? Meta(row)->count : 0;
          out.last_steps[i] = row != nullptr ? Meta(row)->last_step : 0;
          out.last_times[i] = row != nullptr ? Meta(row)->last_time : 0;
          float* value = out.values.get() + i * dim;
          float* state = out.states.get() + i * width;
          if (row == nullptr) {
            std::memset(value, 0, dim * sizeof(float));
            std::memset(state, 0, width * sizeof(float));
          } else {
            std::memcpy(value, Value(row), dim * sizeof(float));
            std::memcpy(state, Value(row) + dim, width * sizeof(float));
          }
        }
      });
}

ExportedRows Table::Export(bool with_state) {
  return Guard::Run(this, [&] {
    SweepDue();
    if (below_ != nullptr) Queue();  // which tells what is below
    ExportedRows out = NewExport(AllRows(), with_state);
    size_t n = 0;
    WalkAll([&](const KeyedRows& rows) {
      Pack(rows, n, &out);
      n += rows.size();
    });
    if (n != out.n) {
      throw std::runtime_error(core_.Where("has " + std::to_string(out.n) + " rows, but " +
                                           std::to_string(n) + " were found"));
    }
    return out;
  });
}

void Table::ExportParts(bool with_state, const std::function<void(ExportedRows)>& fn) {
  Guard::Run(this, [&] {
    SweepDue();
    WalkAll([&](const KeyedRows& rows) {
      if (rows.empty()) return;
      ExportedRows part = NewExport(rows.size(), with_state);
      Pack(rows, 0, &part);
      fn(std::move(part));
    });
  });
}

ExportedRows Table::ExportKeys(const IdView& keys, bool with_state) {
  return Guard::Run(this, [&] {
    core_.CheckKeys(keys, "keys");
    std::vector<char> visitors;
    const KeyedRows rows = RowsOf(keys, &visitors);
    ExportedRows out = NewExport(rows.size(), with_state);
    Pack(rows, 0, &out);
    return out;
  });
}

uint64_t Table::Mark() {
  return Guard::Run(this, [&] {
    ForAllShards([&](int s) { core_.shards[s]->BeginEpoch(core_.epoch + 1, 0); });
    ++core_.epoch;
    if (core_.oldest_mark == 0) core_.oldest_mark = core_.epoch;
    return core_.epoch;
  });
}

ExportedRows Table::ExportSince(uint64_t mark, bool with_state, bool sweep) {
  return Guard::Run(this, [&] {
    if (core_.oldest_mark == 0 || mark < core_.oldest_mark || mark > core_.epoch) {
      throw std::invalid_argument(core_.Where("mark " + std::to_string(mark) +
                                              " is not one of this table's, or was released"));
    }
    if (sweep) SweepDue();
    std::vector<int64_t> keys;
    for (const auto& shard : core_.shards) shard->Changed(mark, &keys);
    std::vector<char> visitors;
    const KeyedRows rows = RowsOf(IdView{keys.data(), keys.size(), true}, &visitors);
    ExportedRows out = NewExport(rows.size(), with_state);
    Pack(rows, 0, &out);
    return out;
  });
}

void Table::ReleaseBefore(uint64_t mark) {
  Guard::Run(this, [&] {
    if (mark == 0) {
      ForAllShards([&](int s) { core_.shards[s]->StopRecording(); });
      core_.oldest_mark = 0;
      return;
    }
    if (core_.oldest_mark == 0) return;
    core_.oldest_mark = std::max(core_.oldest_mark, std::min(mark, core_.epoch));
    for (const auto& shard : core_.shards) shard->Forget(core_.oldest_mark);
  });
}

std::vector<RowMeta> Table::ExportCounters() {
  return Guard::Run(this, [&] {
    std::vector<RowMeta> counters;
    for (const auto& shard : core_.shards) shard->candidates().Export(&counters);
    return counters;
  });
}

std::vector<char> Table::ExportSketch() {
  return Guard::Run(this, [&] {
    std::vector<char> memory;
    for (const auto& shard : core_.shards) {
      CountingSketch& sketch = shard->candidates().sketch();
      memory.resize(memory.size() + sketch.bytes());
      sketch.Save(core_.context.epochs.number, memory.data() + memory.size() - sketch.bytes());
    }
    return memory;
  });
}

void Table::ImportCounters(const std::vector<RowMeta>& counters) {
  Guard::Run(this, [&] {
    if (core_.context.admission.kind != AdmissionKind::kCount || core_.context.is_static()) {
      throw std::invalid_argument(core_.Where("keeps no exact counters of keys without a row"));
    }
    std::vector<int64_t> keys;
    for (const RowMeta& counter : counters) keys.push_back(counter.key);
    std::vector<char> visitors;
    const KeyedRows rows = RowsOf(IdView{keys.data(), keys.size(), true}, &visitors);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (rows[i].second != nullptr) continue;
      core_.ShardFor(keys[i]).candidates().Import(IndexHash(keys[i]), counters[i]);
    }
  });
}

void Table::ImportSketch(const char* data, size_t bytes) {
  Guard::Run(this, [&] {
    size_t total = 0;
    for (const auto& shard : core_.shards) total += shard->candidates().sketch().bytes();
    if (bytes != total) {
      throw std::invalid_argument(core_.Where("has a sketch of " + std::to_string(total) +
                                              " bytes, got one of " + std::to_string(bytes)));
    }
    for (const auto& shard : core_.shards) {
      CountingSketch& sketch = shard->candidates().sketch();
      sketch.Load(core_.context.epochs.number, data);
      data += sketch.bytes();
    }
  });
}

void Table::Import(size_t n, const RowArrays& rows, int32_t state_width) {
  Guard::Run(this, [&] {
    if (rows.states != nullptr && state_width != core_.context.layout.state_width) {
      throw std::invalid_argument(core_.Where("states has " + std::to_string(state_width) +
                                              " floats a row, the table's optimizer has " +
                                              std::to_string(core_.context.layout.state_width)));
    }
    core_.RequireWrittenBack();
    const IdView ids{rows.keys, n, true};
    core_.CheckKeys(ids, "keys");
    ForEachBlock(ids, "rows", "imported", [&](const IdView& some, size_t first) {
      ImportBlock(some, first, rows, state_width);
    });
  });
}

// Rows `first` and on of an import.
void Table::ImportBlock(const IdView& ids, size_t first, const RowArrays& rows,
                        int32_t state_width) {
  const CallPins pins(this);
  auto batch = core_.lookups.NewBatch(ids, {});
  RequireHeadroom(HeadroomForKeys(batch->n));
  if (core_.context.tiered) {
    // Last in this may fail: rows that are replaced come up without their contents.
    BringUp(batch.get(), rows.values != nullptr ? Purpose::kReplace : Purpose::kChange);
  } else {
    for (int s = 0; s < kNumShards; ++s) {
      core_.shards[s]->Reserve(batch->begin[s + 1] - batch->begin[s]);
      core_.shards[s]->ReserveNotes(batch->begin[s + 1] - batch->begin[s]);
    }
  }
  const size_t dim = core_.config.dim;
  ForShards(*batch, [&](int s) {
    const size_t begin = batch->begin[s];
    for (size_t i = begin; i < batch->begin[s + 1]; ++i) {
      const size_t p = first + batch->pos[i];
      RowArrays one;
      one.values = rows.values != nullptr ? rows.values + p * dim : nullptr;
      one.states = rows.states != nullptr ? rows.states + p * state_width : nullptr;
      one.counts = rows.counts != nullptr ? rows.counts + p : nullptr;
      one.last_steps = rows.last_steps != nullptr ? rows.last_steps + p : nullptr;
      one.last_times = rows.last_times != nullptr ? rows.last_times + p : nullptr;
      const int64_t key = batch->key[batch->probed ? begin + batch->inverse[i] : i];
      if (core_.device != nullptr) core_.device->WriteBackAndForget(s, key);
      core_.shards[s]->Import(key, one);
    }
  });
  core_.lookups.Recycle(std::move(batch));
}

void Table::Clear() {
  Guard::Run(this, [&] {
    // Everything that can fail comes first.
    std::vector<Shard::Empty> empty;
    for (const auto& shard : core_.shards) empty.push_back(shard->Emptied());
    ClearBelow();
    ForgetStep();
    if (core_.device != nullptr) core_.device->Clear();
    for (int s = 0; s < kNumShards; ++s) core_.shards[s]->Clear(std::move(empty[s]));
    ++core_.relayouts;
    if (below_ == nullptr) return;
    try {
      Queue().Drain();
    } catch (const std::exception& error) {
      // Nothing is read or written past the queue, so the table is empty for whoever looks.
      throw std::runtime_error(core_.Where(
          "is empty now, but a tier below it could not be emptied yet, which is tried again "
          "before it is used: " +
          std::string(error.what())));
    }
  });
}

}  // namespace msrec
