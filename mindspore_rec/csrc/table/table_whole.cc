// SPDX-License-Identifier: Apache-2.0
//
// Table: whole tables in and out.
#include <algorithm>
#include <cstring>
#include <utility>

#include "readers/quantised_rows.h"
#include "rows/for_shards.h"
#include "table/cache/row_cache.h"
#include "table/table_guard.h"
#include "util/headroom.h"

namespace msrec {

RowLayout Table::layout() {
  return Guard::Run(this, [&] { return core_.context.layout; });
}

ExportedRows Table::Export(bool with_state) {
  return Guard::Run(this, [&] {
    evictor_.EvictDue();
    if (core_.quantised != nullptr) {
      const std::vector<int64_t> keys = core_.quantised->Keys(nullptr);
      return ExportQuantised({keys.data(), keys.size(), true}, with_state);
    }
    if (core_.cache != nullptr) core_.cache->tiers.Queue();  // which counts what is in them
    ExportedRows out = NewExport(core_.context.layout, reader_.Count(), with_state);
    size_t n = 0;
    reader_.Walk([&](const KeyedRows& rows) {
      Pack(core_.context.layout, rows, n, &out);
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
    evictor_.EvictDue();
    if (core_.quantised != nullptr) return ExportQuantisedParts(with_state, fn);
    reader_.Walk([&](const KeyedRows& rows) {
      if (rows.empty()) return;
      ExportedRows part = NewExport(core_.context.layout, rows.size(), with_state);
      Pack(core_.context.layout, rows, 0, &part);
      fn(std::move(part));
    });
  });
}

ExportedRows Table::ExportKeys(const IdView& keys, bool with_state) {
  return Guard::Run(this, [&] {
    core_.CheckKeys(keys, "keys");
    if (core_.quantised != nullptr) return ExportQuantised(keys, with_state);
    std::vector<char> copies;
    const KeyedRows rows = reader_.Find(keys, &copies);
    ExportedRows out = NewExport(core_.context.layout, rows.size(), with_state);
    Pack(core_.context.layout, rows, 0, &out);
    return out;
  });
}

uint64_t Table::Mark() {
  return Guard::Run(this, [&] {
    RefuseQuantised("recording changes");
    WriteBackForDigest();
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
    if (sweep) evictor_.EvictDue();
    std::vector<int64_t> of[kNumShards];
    ForAllShards([&](int s) { core_.shards[s]->Changed(mark, &of[s]); });
    size_t first[kNumShards + 1] = {};
    for (int s = 0; s < kNumShards; ++s) first[s + 1] = first[s] + of[s].size();
    if (core_.cache == nullptr && core_.device == nullptr && !core_.context.is_static()) {
      ExportedRows out = NewExport(core_.context.layout, first[kNumShards], with_state);
      ForAllShards([&](int s) { core_.shards[s]->Export(of[s], first[s], &out); });
      return out;
    }
    std::vector<int64_t> keys;
    keys.reserve(first[kNumShards]);
    for (const auto& each : of) keys.insert(keys.end(), each.begin(), each.end());
    std::vector<char> copies;
    const KeyedRows rows = reader_.Find(IdView{keys.data(), keys.size(), true}, &copies);
    ExportedRows out = NewExport(core_.context.layout, rows.size(), with_state);
    Pack(core_.context.layout, rows, 0, &out);
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
    if (core_.quantised != nullptr) return;  // nothing counts any more
    std::vector<int64_t> keys;
    for (const RowMeta& counter : counters) keys.push_back(counter.key);
    std::vector<char> copies;
    const KeyedRows rows = reader_.Find(IdView{keys.data(), keys.size(), true}, &copies);
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
    if (core_.quantised != nullptr) return PutQuantised(ids, rows.values, rows);
    ForEachPart(ids, "rows", "imported", [&](const IdView& some, size_t first) {
      ImportBlock(some, first, rows, state_width);
    });
  });
}

void Table::Import(const IdView& ids, const float* values) {
  RowArrays rows;  // which an import reads only
  rows.keys = const_cast<int64_t*>(static_cast<const int64_t*>(ids.data));
  rows.values = const_cast<float*>(values);
  Import(ids.size, rows, 0);
}

void Table::ImportBlock(const IdView& ids, size_t first, const RowArrays& rows,
                        int32_t state_width) {
  const CallScope call(this);
  auto batch = core_.lookups.NewBatch(ids, {});
  RequireHeadroom(HeadroomForKeys(batch->n));
  if (core_.cache != nullptr) {
    // Last in this may fail: rows that are replaced are promoted without their contents.
    core_.cache->host.Promote(
        batch.get(), rows.values != nullptr ? LookupPurpose::kReplace : LookupPurpose::kUpdate);
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
    if (core_.quantised != nullptr) {
      core_.quantised->Clear();
      WriteFirstRows(core_.quantised.get());
      return;
    }
    // Everything that can fail comes first.
    std::vector<Shard::Empty> empty;
    for (const auto& shard : core_.shards) empty.push_back(shard->Emptied());
    if (core_.cache != nullptr) {
      core_.cache->tiers.Clear();
    } else {
      core_.ReserveChanges({}, true);
    }
    ForgetStep();
    if (core_.device != nullptr) core_.device->Clear();
    for (int s = 0; s < kNumShards; ++s) core_.shards[s]->Clear(std::move(empty[s]));
    ++core_.relayouts;
    // Every key of a vocabulary has its first row again. Whoever wants the digest asks anew.
    if (core_.context.is_static()) core_.DropDigest();
    if (core_.cache == nullptr) return;
    try {
      core_.cache->tiers.Queue().Drain();
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
