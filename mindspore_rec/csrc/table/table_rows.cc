// SPDX-License-Identifier: Apache-2.0
//
// Table: rows by key.
#include <algorithm>
#include <cstring>
#include <utility>

#include "readers/quantised_rows.h"
#include "rows/for_shards.h"
#include "rows/row_values.h"
#include "table/cache/row_cache.h"
#include "table/table_guard.h"
#include "util/headroom.h"

namespace msrec {

void Table::Get(const IdView& ids, const IdFilter& filter, bool insert, float* out) {
  Guard::Run(this, [&] {
    const CallScope call(this);
    if (insert && core_.trainable) RefuseQuantised("a lookup that inserts");
    if (core_.quantised != nullptr) {
      return LookUpQuantised(ids, filter, nullptr, core_.serving_unknown_row.data(), out);
    }
    auto batch = core_.lookups.NewBatch(ids, filter);
    if (insert && core_.trainable) {
      lookup_.Run(batch.get(), LookupPurpose::kInsert, core_.unknown_row.data(), out);
    } else {
      lookup_.Run(batch.get(), LookupPurpose::kEvaluate, core_.serving_unknown_row.data(), out);
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
    if (core_.quantised != nullptr) {
      core_.CheckKeys(ids, "keys");
      std::vector<uint32_t> steps(ids.size, static_cast<uint32_t>(core_.context.step));
      std::vector<uint32_t> times(ids.size, core_.context.time);
      RowArrays ages;
      ages.last_steps = steps.data();
      ages.last_times = times.data();
      return PutQuantised(ids, values, ages);
    }
    const size_t dim = core_.config.dim;
    // A key counts once a call, and of a key put twice the last value stays: where the call is done
    // in blocks, no key may be in two.
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
    ForEachPart(distinct, "keys", "stored", [&](const IdView& some, size_t begin) {
      const CallScope call(this);
      auto batch = core_.lookups.NewBatch(some, {});
      lookup_.Run(batch.get(), LookupPurpose::kPut, nullptr, nullptr);
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
  return Guard::Run(this, [&] {
    if (core_.context.is_static()) {
      throw std::invalid_argument(
          core_.Where("is static: its keys are the vocabulary and cannot be erased"));
    }
    if (core_.quantised != nullptr) return core_.quantised->Erase(ids);
    size_t total = 0;
    ForEachPart(ids, "keys", "erased", [&](const IdView& some, size_t) {
      const CallScope call(this);
      auto batch = core_.lookups.NewBatch(some, {});
      if (core_.cache != nullptr) core_.cache->host.Promote(batch.get(), LookupPurpose::kUpdate);
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
    if (core_.quantised != nullptr) {
      const AgeLimit limit = Ages();
      for (size_t i = 0; i < ids.size; ++i) out[i] = core_.quantised->Contains(ids[i], &limit);
      return;
    }
    std::vector<char> copies;
    const KeyedRows rows = reader_.Find(ids, &copies);
    for (size_t i = 0; i < ids.size; ++i) out[i] = rows[i].second != nullptr;
  });
}

size_t Table::Size() {
  return Guard::Run(this, [&] {
    evictor_.EvictDue();
    if (core_.cache != nullptr) core_.cache->tiers.Queue();  // which counts what is in them
    return reader_.Count();
  });
}

std::vector<int64_t> Table::Keys() {
  return Guard::Run(this, [&] {
    evictor_.EvictDue();
    if (core_.quantised != nullptr) return core_.quantised->Keys(nullptr);
    std::vector<int64_t> keys;
    reader_.Walk([&](const KeyedRows& rows) {
      for (const auto& each : rows) keys.push_back(each.first);
    });
    return keys;
  });
}

void Table::ForEachPart(const IdView& ids, const char* what, const char* done,
                        const std::function<void(const IdView&, size_t)>& fn) {
  const size_t part = core_.cache == nullptr ? ids.size : core_.cache->host.PartKeys();
  for (size_t first = 0; first < ids.size; first += part) {
    IdView some = ids;
    const size_t width = ids.is_int64 ? sizeof(int64_t) : sizeof(int32_t);
    some.data = static_cast<const char*>(ids.data) + first * ids.stride * width;
    some.size = std::min(part, ids.size - first);
    const auto so_far = [&](const std::string& error) {
      return error + "; of the " + std::to_string(ids.size) + " " + what + ", the first " +
             std::to_string(first) + " were " + done + ", the others were not";
    };
    try {
      fn(some, first);
    } catch (const std::bad_alloc&) {
      if (first == 0) throw;
      throw OutOfMemory(so_far(core_.Where("out of memory")));
    } catch (const std::invalid_argument& error) {
      if (first == 0) throw;
      throw std::invalid_argument(so_far(error.what()));
    } catch (const std::runtime_error& error) {
      if (first == 0) throw;
      throw std::runtime_error(so_far(error.what()));
    }
  }
}

}  // namespace msrec
