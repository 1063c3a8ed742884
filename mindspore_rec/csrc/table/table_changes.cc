// SPDX-License-Identifier: Apache-2.0
#include "table/table_changes.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "rows/for_shards.h"
#include "rows/row_digests.h"
#include "table/cache/row_cache.h"
#include "table/table_guard.h"
#include "util/for_blocks.h"

namespace msrec {
namespace {

constexpr size_t kRowsOfTask = 4096;

}  // namespace

uint64_t TableChanges::Mark() {
  return TableGuard::Run(&core_, [&] {
    engine_.quantised.Refuse("recording changes");
    WriteBackForDigest();
    ForAllShards([&](int s) { core_.shards[s]->BeginEpoch(core_.epoch + 1, 0); });
    ++core_.epoch;
    if (core_.oldest_mark == 0) core_.oldest_mark = core_.epoch;
    return core_.epoch;
  });
}

ExportedRows TableChanges::ExportSince(uint64_t mark, bool with_state, bool sweep) {
  return TableGuard::Run(&core_, [&] {
    if (core_.oldest_mark == 0 || mark < core_.oldest_mark || mark > core_.epoch) {
      throw std::invalid_argument(core_.Where("mark " + std::to_string(mark) +
                                              " is not one of this table's, or was released"));
    }
    if (sweep) engine_.evictor.EvictDue();
    std::vector<int64_t> of[kNumShards];
    ForAllShards([&](int s) { core_.shards[s]->changes().Collect(mark, &of[s]); });
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
    const KeyedRows rows = engine_.reader.Find(IdView{keys.data(), keys.size(), true}, &copies);
    ExportedRows out = NewExport(core_.context.layout, rows.size(), with_state);
    Pack(core_.context.layout, rows, 0, &out);
    return out;
  });
}

void TableChanges::ReleaseBefore(uint64_t mark) {
  TableGuard::Run(&core_, [&] {
    if (mark == 0) {
      ForAllShards([&](int s) { core_.shards[s]->StopRecording(); });
      core_.oldest_mark = 0;
      return;
    }
    if (core_.oldest_mark == 0) return;
    core_.oldest_mark = std::max(core_.oldest_mark, std::min(mark, core_.epoch));
    for (const auto& shard : core_.shards) shard->changes().Forget(core_.oldest_mark);
  });
}

// ---------------------------------------------------------------- the digest that is kept

void TableChanges::KeepDigest() {
  TableGuard::Run(&core_, [&] {
    if (core_.oldest_mark == 0) {
      throw std::invalid_argument(
          core_.Where("no changes are recorded, of which a digest is kept"));
    }
    if (!core_.KeepsDigest()) RenewDigest();
  });
}

void TableChanges::RenewDigest() {
  core_.DropDigest();
  core_.RequireWrittenBack();
  if (core_.device != nullptr) core_.device->WriteBackAll();
  std::vector<DigestSums> elsewhere(kNumShards, DigestSums(core_.context.eviction));
  std::vector<uint64_t> digests;
  engine_.reader.WalkBelow([&](const KeyedRows& rows) {
    digests.resize(rows.size());
    ForBlocks(rows.size(), kRowsOfTask, [&](size_t begin, size_t end) {
      std::vector<const char*> of;
      for (size_t i = begin; i < end; ++i) of.push_back(rows[i].second);
      DigestRows(core_.context.layout, of.data(), of.size(), digests.data() + begin);
    });
    for (size_t i = 0; i < rows.size(); ++i) {
      elsewhere[core_.ShardNumber(rows[i].first)].AddBelow(*Meta(rows[i].second), digests[i]);
    }
  });
  try {
    ForAllShards([&](int s) { core_.shards[s]->digests().Keep(std::move(elsewhere[s])); });
  } catch (const std::bad_alloc&) {
    core_.DropDigest();
    throw;
  }
}

bool TableChanges::DigestIsReady() {
  if (!core_.KeepsDigest()) {
    core_.DropDigest();  // of some shards it may be left
    return false;
  }
  core_.RequireWrittenBack();
  if (core_.device != nullptr) core_.device->WriteBackAll();
  return true;
}

std::optional<uint64_t> TableChanges::KeptDigest() {
  return TableGuard::Run(&core_, [&]() -> std::optional<uint64_t> {
    if (!DigestIsReady()) return std::nullopt;
    uint64_t of[kNumShards];
    ForAllShards([&](int s) { of[s] = core_.shards[s]->Digest(); });
    if (!core_.KeepsDigest()) return std::nullopt;  // memory has run out for it
    uint64_t sum = 0;
    for (const uint64_t each : of) sum += each;
    return sum;
  });
}

void TableChanges::WriteBackForDigest() noexcept {
  if (core_.device == nullptr || !core_.KeepsDigest()) return;
  try {
    core_.RequireWrittenBack();
    core_.device->WriteBackAll();
  } catch (const std::exception&) {
    core_.DropDigest();
  }
}

std::vector<int64_t> TableChanges::DamagedRows(uint32_t part, uint32_t parts) {
  return TableGuard::Run(&core_, [&] {
    if (!core_.KeepsDigest()) {
      throw std::invalid_argument(core_.Where("keeps no digests to compare its rows with"));
    }
    std::vector<int64_t> of[kNumShards];
    ForAllShards([&](int s) { core_.shards[s]->digests().DamagedRows(part, parts, &of[s]); });
    std::vector<int64_t> keys;
    for (const auto& each : of) keys.insert(keys.end(), each.begin(), each.end());
    return keys;
  });
}

}  // namespace msrec
