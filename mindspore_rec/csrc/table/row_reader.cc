// SPDX-License-Identifier: Apache-2.0
#include "table/row_reader.h"

#include <algorithm>
#include <memory>

#include "readers/quantised_rows.h"
#include "table/cache/row_cache.h"
#include "table/core/row_rules.h"

namespace msrec {
namespace {

constexpr size_t kUnseenRows = 4096;

}  // namespace

KeyedRows RowReader::Find(const IdView& keys, std::vector<char>* copies) {
  KeyedRows rows;
  rows.reserve(keys.size);
  std::vector<int64_t> missing;
  core_.RequireWrittenBack();
  for (size_t i = 0; core_.device != nullptr && i < keys.size; ++i) {
    core_.device->WriteBack(keys[i]);
  }
  for (size_t i = 0; i < keys.size; ++i) {
    rows.emplace_back(keys[i], core_.ShardFor(keys[i]).Find(keys[i]));
    if (rows.back().second == nullptr && (core_.cache != nullptr || core_.context.has_unseen())) {
      // If a row in host memory is due for eviction, its key must not be looked up in lower tiers,
      // because copies in lower tiers are older.
      if (!core_.ShardFor(keys[i]).Holds(keys[i])) missing.push_back(keys[i]);
    }
  }
  if (missing.empty()) return rows;
  std::unique_ptr<bool[]> found;
  const size_t stride = core_.context.layout.stride();
  if (core_.cache != nullptr) {
    core_.cache->tiers.Read(missing, copies, &found);
  } else {
    copies->resize(missing.size() * stride);
    found.reset(new bool[missing.size()]());
  }
  size_t next = 0;
  for (auto& [key, row] : rows) {
    if (next == missing.size() || row != nullptr || key != missing[next]) continue;
    char* block = copies->data() + next * stride;
    if (found[next]) {
      row = ReadThrough(core_.context, block);
    } else if (core_.context.is_static()) {
      WriteFirst(core_.context, block, key);
      row = block;
    }
    ++next;
  }
  return rows;
}

void RowReader::WalkBelow(const std::function<void(const KeyedRows&)>& fn) {
  const bool has_unseen = core_.context.has_unseen();
  std::vector<bool> seen(has_unseen ? core_.config.vocabulary : 0);
  if (has_unseen) {
    for (const auto& shard : core_.shards) {
      for (const char* row : shard->Rows()) seen[Meta(row)->key] = true;
    }
  }
  if (core_.cache != nullptr) {
    core_.cache->tiers.Walk([&](KeyedRows& rows) {
      for (size_t i = 0; has_unseen && i < rows.size(); ++i) seen[rows[i].first] = true;
      fn(rows);
    });
  }
  if (has_unseen) WalkUnseen(seen, fn);
}

void RowReader::Walk(const std::function<void(const KeyedRows&)>& fn) {
  core_.RequireWrittenBack();
  if (core_.device != nullptr) core_.device->WriteBackAll();
  const bool has_unseen = core_.context.has_unseen();
  std::vector<bool> seen(has_unseen ? core_.config.vocabulary : 0);
  const auto give = [&](const KeyedRows& rows) {
    for (const auto& each : rows) {
      if (has_unseen) seen[each.first] = true;
    }
    fn(rows);
  };
  for (const auto& shard : core_.shards) {
    KeyedRows rows;
    for (const char* row : shard->Rows()) rows.emplace_back(Meta(row)->key, row);
    give(rows);
  }
  if (core_.cache != nullptr) {
    core_.cache->tiers.Walk([&](KeyedRows& rows) {
      const auto due = [&](const auto& each) { return core_.context.Due(*Meta(each.second)); };
      rows.erase(std::remove_if(rows.begin(), rows.end(), due), rows.end());
      give(rows);
    });
  }
  if (has_unseen) WalkUnseen(seen, fn);
}

void RowReader::WalkUnseen(const std::vector<bool>& seen,
                           const std::function<void(const KeyedRows&)>& fn) {
  const size_t stride = core_.context.layout.stride();
  std::vector<char> blocks(kUnseenRows * stride);
  KeyedRows rows;
  for (size_t key = 0; key < seen.size(); ++key) {
    if (!seen[key] && core_.Owns(static_cast<int64_t>(key))) {
      char* block = blocks.data() + rows.size() * stride;
      WriteFirst(core_.context, block, static_cast<int64_t>(key));
      rows.emplace_back(key, block);
    }
    if (rows.size() < kUnseenRows && key + 1 < seen.size()) continue;
    fn(rows);
    rows.clear();
  }
}

size_t RowReader::Count() const {
  if (core_.quantised != nullptr) return core_.quantised->Size();
  if (core_.context.has_unseen()) return core_.OwnedVocabulary();
  if (core_.cache == nullptr) return core_.Rows();
  return core_.Rows() + static_cast<size_t>(core_.cache->tiers.rows());
}

}  // namespace msrec
