// SPDX-License-Identifier: Apache-2.0
//
// The methods of Table that export, import or clear a whole table.
#include <algorithm>
#include <cstring>
#include <utility>

#include "readers/quantised_rows.h"
#include "rows/for_shards.h"
#include "table/cache/row_cache.h"
#include "table/table.h"
#include "table/table_guard.h"
#include "util/headroom.h"

namespace msrec {

RowLayout Table::layout() {
  return TableGuard::Run(&core_, [&] { return core_.context.layout; });
}

ExportedRows Table::Export(bool with_state) {
  return TableGuard::Run(&core_, [&] {
    engine_.evictor.EvictDue();
    if (core_.quantised != nullptr) {
      const std::vector<int64_t> keys = core_.quantised->Keys(nullptr);
      return engine_.quantised.Export({keys.data(), keys.size(), true}, with_state);
    }
    if (core_.cache != nullptr) core_.cache->tiers.Queue();  // which counts what is in them
    ExportedRows out = NewExport(core_.context.layout, engine_.reader.Count(), with_state);
    size_t n = 0;
    engine_.reader.Walk([&](const KeyedRows& rows) {
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
  TableGuard::Run(&core_, [&] {
    engine_.evictor.EvictDue();
    if (core_.quantised != nullptr) return engine_.quantised.ExportParts(with_state, fn);
    engine_.reader.Walk([&](const KeyedRows& rows) {
      if (rows.empty()) return;
      ExportedRows part = NewExport(core_.context.layout, rows.size(), with_state);
      Pack(core_.context.layout, rows, 0, &part);
      fn(std::move(part));
    });
  });
}

ExportedRows Table::ExportKeys(const IdView& keys, bool with_state) {
  return TableGuard::Run(&core_, [&] {
    core_.CheckKeys(keys, "keys");
    if (core_.quantised != nullptr) return engine_.quantised.Export(keys, with_state);
    std::vector<char> copies;
    const KeyedRows rows = engine_.reader.Find(keys, &copies);
    ExportedRows out = NewExport(core_.context.layout, rows.size(), with_state);
    Pack(core_.context.layout, rows, 0, &out);
    return out;
  });
}

void Table::Import(size_t n, const RowArrays& rows, int32_t state_width) {
  TableGuard::Run(&core_, [&] {
    if (rows.states != nullptr && state_width != core_.context.layout.state_width) {
      throw std::invalid_argument(core_.Where("states has " + std::to_string(state_width) +
                                              " floats a row, the table's optimizer has " +
                                              std::to_string(core_.context.layout.state_width)));
    }
    core_.RequireWrittenBack();
    const IdView ids{rows.keys, n, true};
    core_.CheckKeys(ids, "keys");
    if (core_.quantised != nullptr) return engine_.quantised.Put(ids, rows.values, rows);
    engine_.ForEachPart(ids, "rows", "imported", [&](const IdView& some, size_t first) {
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
  const CallScope call(&core_);
  auto batch = core_.lookups.NewBatch(ids, {});
  RequireHeadroom(HeadroomForKeys(batch->n));
  if (core_.cache != nullptr) {
    // Operations after Promote cannot fail. If the rows will be overwritten, they are promoted
    // without their contents.
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
  TableGuard::Run(&core_, [&] {
    if (core_.quantised != nullptr) {
      core_.quantised->Clear();
      engine_.quantised.WriteFirstRows(core_.quantised.get());
      return;
    }
    // First do all operations that can fail.
    std::vector<Shard::Empty> empty;
    for (const auto& shard : core_.shards) empty.push_back(shard->Emptied());
    uint64_t below = 0;
    if (core_.cache != nullptr) {
      below = core_.cache->tiers.Clear();
    } else {
      core_.ReserveChanges({}, true);
    }
    engine_.ForgetStep();
    if (core_.device != nullptr) core_.device->Clear();
    for (int s = 0; s < kNumShards; ++s) {
      core_.shards[s]->Clear(std::move(empty[s]), s == 0 ? below : 0);
    }
    ++core_.relayouts;
    // Every row of a table with a vocabulary has its initial values again. The stored digest does
    // not match the initial values, so the digest is dropped.
    if (core_.context.is_static()) core_.DropDigest();
    if (core_.cache == nullptr) return;
    try {
      core_.cache->tiers.Queue().Drain();
    } catch (const std::exception& error) {
      // All reads and writes go through the queue, which already treats the tier as empty, so reads
      // find no rows.
      throw std::runtime_error(core_.Where(
          "is empty now, but a tier below it could not be emptied yet, which is tried again "
          "before it is used: " +
          std::string(error.what())));
    }
  });
}

}  // namespace msrec
