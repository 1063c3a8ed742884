// SPDX-License-Identifier: Apache-2.0
//
// Table: digests of rows, each by reading it, and of all rows, kept as they change.
#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include "readers/quantised_rows.h"
#include "rows/for_shards.h"
#include "rows/row_digests.h"
#include "table/cache/row_cache.h"
#include "table/table_guard.h"
#include "util/for_blocks.h"

namespace msrec {
namespace {

constexpr size_t kDigestsHeld = size_t{1} << 17;
constexpr size_t kBlockRows = 4096;  // of a task

}  // namespace

void Table::Digests(const TakeDigests& fn) {
  Guard::Run(this, [&] {
    evictor_.EvictDue();
    std::vector<int64_t> keys;
    std::vector<uint64_t> digests;
    if (core_.quantised != nullptr) {
      const AgeLimit limit = Ages();
      keys = core_.quantised->Keys(&limit);
      digests.resize(std::min(keys.size(), kDigestsHeld));
      for (size_t first = 0; first < keys.size(); first += kDigestsHeld) {
        const size_t n = std::min(kDigestsHeld, keys.size() - first);
        ForBlocks(n, kBlockRows, [&](size_t begin, size_t end) {
          core_.quantised->Digests(keys.data() + first + begin, end - begin,
                                   digests.data() + begin);
        });
        fn(keys.data() + first, digests.data(), n);
      }
      return;
    }
    keys.resize(kDigestsHeld);
    digests.resize(kDigestsHeld);
    std::vector<const char*> of(kDigestsHeld);
    reader_.Walk([&](const KeyedRows& rows) {
      for (size_t first = 0; first < rows.size(); first += kDigestsHeld) {
        const size_t n = std::min(kDigestsHeld, rows.size() - first);
        ForBlocks(n, kBlockRows, [&](size_t begin, size_t end) {
          for (size_t i = begin; i < end; ++i) {
            keys[i] = rows[first + i].first;
            of[i] = rows[first + i].second;
          }
          DigestRows(core_.context.layout, of.data() + begin, end - begin, digests.data() + begin);
        });
        fn(keys.data(), digests.data(), n);
      }
    });
  });
}

void Table::KeepDigest() {
  Guard::Run(this, [&] {
    if (core_.oldest_mark == 0) {
      throw std::invalid_argument(
          core_.Where("no changes are recorded, of which a digest is kept"));
    }
    if (!core_.KeepsDigest()) RenewDigest();
  });
}

void Table::RenewDigest() {
  core_.DropDigest();
  core_.RequireWrittenBack();
  if (core_.device != nullptr) core_.device->WriteBackAll();
  std::vector<DigestSums> elsewhere(kNumShards, DigestSums(core_.context.eviction));
  std::vector<uint64_t> digests;
  reader_.WalkBelow([&](const KeyedRows& rows) {
    digests.resize(rows.size());
    ForBlocks(rows.size(), kBlockRows, [&](size_t begin, size_t end) {
      std::vector<const char*> of;
      for (size_t i = begin; i < end; ++i) of.push_back(rows[i].second);
      DigestRows(core_.context.layout, of.data(), of.size(), digests.data() + begin);
    });
    for (size_t i = 0; i < rows.size(); ++i) {
      elsewhere[core_.ShardNumber(rows[i].first)].AddBelow(*Meta(rows[i].second), digests[i]);
    }
  });
  try {
    ForAllShards([&](int s) { core_.shards[s]->KeepDigest(std::move(elsewhere[s])); });
  } catch (const std::bad_alloc&) {
    core_.DropDigest();
    throw;
  }
}

bool Table::DigestIsReady() {
  if (!core_.KeepsDigest()) {
    core_.DropDigest();  // of some shards it may be left
    return false;
  }
  core_.RequireWrittenBack();
  if (core_.device != nullptr) core_.device->WriteBackAll();
  return true;
}

std::optional<uint64_t> Table::KeptDigest() {
  return Guard::Run(this, [&]() -> std::optional<uint64_t> {
    if (!DigestIsReady()) return std::nullopt;
    uint64_t of[kNumShards];
    ForAllShards([&](int s) { of[s] = core_.shards[s]->Digest(); });
    if (!core_.KeepsDigest()) return std::nullopt;  // memory has run out for it
    uint64_t sum = 0;
    for (const uint64_t each : of) sum += each;
    return sum;
  });
}

void Table::WriteBackForDigest() noexcept {
  if (core_.device == nullptr || !core_.KeepsDigest()) return;
  try {
    core_.RequireWrittenBack();
    core_.device->WriteBackAll();
  } catch (const std::exception&) {
    core_.DropDigest();
  }
}

std::vector<int64_t> Table::DamagedRows(uint32_t part, uint32_t parts) {
  return Guard::Run(this, [&] {
    if (!core_.KeepsDigest()) {
      throw std::invalid_argument(core_.Where("keeps no digests to compare its rows with"));
    }
    std::vector<int64_t> of[kNumShards];
    ForAllShards([&](int s) { core_.shards[s]->DamagedRows(part, parts, &of[s]); });
    std::vector<int64_t> keys;
    for (const auto& each : of) keys.insert(keys.end(), each.begin(), each.end());
    return keys;
  });
}

}  // namespace msrec
