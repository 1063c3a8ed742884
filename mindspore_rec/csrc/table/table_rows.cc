// SPDX-License-Identifier: Apache-2.0
//
// The methods of Table that access rows by key.
#include <algorithm>
#include <cstring>
#include <utility>

#include "readers/quantised_rows.h"
#include "rows/for_shards.h"
#include "rows/row_values.h"
#include "table/cache/row_cache.h"
#include "table/table.h"
#include "table/table_guard.h"
#include "util/headroom.h"

namespace msrec {

void Table::Get(const IdView& ids, const IdFilter& filter, bool insert, float* out) {
  TableGuard::Run(&core_, [&] {
    const CallScope call(&core_);
    if (insert && core_.trainable) engine_.quantised.Refuse("a lookup that inserts");
    if (core_.quantised != nullptr) {
      return engine_.quantised.LookUp(ids, filter, nullptr, core_.serving_unknown_row.data(), out);
    }
    auto batch = core_.lookups.NewBatch(ids, filter);
    if (insert && core_.trainable) {
      engine_.lookup.Run(batch.get(), LookupPurpose::kInsert, core_.unknown_row.data(), out);
    } else {
      engine_.lookup.Run(batch.get(), LookupPurpose::kEvaluate, core_.serving_unknown_row.data(),
                         out);
    }
    core_.lookups.Recycle(std::move(batch));
  });
}

void Table::Put(const IdView& ids, const float* values, size_t value_rows) {
  TableGuard::Run(&core_, [&] {
    if (value_rows != ids.size) {
      throw std::invalid_argument(core_.Where("keys and values must have the same length, got " +
                                              std::to_string(ids.size) + " keys and " +
                                              std::to_string(value_rows) + " values"));
    }
    if (core_.quantised != nullptr) {
      core_.CheckKeys(ids, "keys");
      std::vector<uint32_t> steps(ids.size, static_cast<uint32_t>(core_.context.step));
      std::vector<uint32_t> times(ids.size, core_.context.time);
      RowArrays ages;
      ages.last_steps = steps.data();
      ages.last_times = times.data();
      return engine_.quantised.Put(ids, values, ages);
    }
    const size_t dim = core_.config.dim;
    // If a call contains a key several times, the key is counted once, and its last value is
    // stored. If the call is split into parts, no key may be in two parts, because the key would be
    // counted twice.
    std::vector<int64_t> keys;
    std::vector<size_t> last;
    IdView distinct = ids;
    if (core_.cache != nullptr) {
      KeySet set;
      set.Reset(ids.size);
      keys.resize(ids.size);
      last.resize(ids.size);
      for (size_t i = 0; i < ids.size; ++i) last[set.FindOrAdd(ids[i], keys.data())] = i;
      keys.resize(set.size());
      distinct = {keys.data(), keys.size(), true};
    }
    core_.CheckIds(ids, {});
    engine_.ForEachPart(distinct, "keys", "stored", [&](const IdView& some, size_t begin) {
      const CallScope call(&core_);
      auto batch = core_.lookups.NewBatch(some, {});
      engine_.lookup.Run(batch.get(), LookupPurpose::kPut, nullptr, nullptr);
      ForShards(*batch, [&](int s) {
        const size_t first = batch->begin[s];
        for (size_t i = 0; core_.device != nullptr && i < batch->unique[s]; ++i) {
          core_.device->Forget(s, batch->key[first + i]);
        }
        for (size_t i = first; i < batch->begin[s + 1]; ++i) {  // in order of positions
          char* row = batch->row[first + batch->inverse[i]];
          const size_t p = begin + batch->pos[i];
          WriteValue(core_.context.layout, values + (core_.cache != nullptr ? last[p] : p) * dim,
                     row);
        }
      });
      core_.lookups.Recycle(std::move(batch));
    });
  });
}

size_t Table::Erase(const IdView& ids) {
  return TableGuard::Run(&core_, [&] {
    if (core_.context.is_static()) {
      throw std::invalid_argument(
          core_.Where("is static: its keys are the vocabulary and cannot be erased"));
    }
    if (core_.quantised != nullptr) return core_.quantised->Erase(ids);
    size_t total = 0;
    engine_.ForEachPart(ids, "keys", "erased", [&](const IdView& some, size_t) {
      const CallScope call(&core_);
      auto batch = core_.lookups.NewBatch(some, {});
      if (core_.cache != nullptr) core_.cache->host.Promote(batch.get(), LookupPurpose::kUpdate);
      for (int s = 0; !batch->probed && s < kNumShards; ++s) {
        core_.shards[s]->ReserveNotes(batch->begin[s + 1] - batch->begin[s]);
      }
      RequireHeadroom(HeadroomForKeys(batch->n));
      size_t erased[kNumShards] = {};
      ForShards(*batch, [&](int s) {
        const size_t first = batch->begin[s];
        // A repeated key is counted once, because the row is already erased when the key occurs
        // again.
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
  TableGuard::Run(&core_, [&] {
    if (core_.context.is_static()) {
      for (size_t i = 0; i < ids.size; ++i)
        out[i] = ids[i] >= 0 && ids[i] < core_.config.vocabulary;
      return;
    }
    if (core_.quantised != nullptr) {
      const AgeLimit limit = engine_.quantised.Ages();
      for (size_t i = 0; i < ids.size; ++i) out[i] = core_.quantised->Contains(ids[i], &limit);
      return;
    }
    std::vector<char> copies;
    const KeyedRows rows = engine_.reader.Find(ids, &copies);
    for (size_t i = 0; i < ids.size; ++i) out[i] = rows[i].second != nullptr;
  });
}

size_t Table::Size() {
  return TableGuard::Run(&core_, [&] {
    engine_.evictor.EvictDue();
    if (core_.cache != nullptr) core_.cache->tiers.Queue();  // which counts what is in them
    return engine_.reader.Count();
  });
}

std::vector<int64_t> Table::Keys() {
  return TableGuard::Run(&core_, [&] {
    engine_.evictor.EvictDue();
    if (core_.quantised != nullptr) return core_.quantised->Keys(nullptr);
    std::vector<int64_t> keys;
    engine_.reader.Walk([&](const KeyedRows& rows) {
      for (const auto& each : rows) keys.push_back(each.first);
    });
    return keys;
  });
}

}  // namespace msrec
