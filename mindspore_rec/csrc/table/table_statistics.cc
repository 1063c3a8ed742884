// SPDX-License-Identifier: Apache-2.0
//
// Table: statistics.

#include "readers/quantised_rows.h"
#include "table/cache/row_cache.h"
#include "table/table.h"
#include "table/table_guard.h"

namespace msrec {
namespace {

int64_t Count(uint64_t n) { return static_cast<int64_t>(n); }

LevelStats StatsOf(const LowerTiers::Level& level) {
  LevelStats stats;
  stats.kind = level.kind;
  stats.rows = Count(level.tier.rows);
  stats.hits = Count(level.traffic.hits);
  stats.written_rows = Count(level.traffic.written_rows);
  stats.spilled_rows = Count(level.traffic.spilled_rows);
  stats.read = Bytes(level.tier.read_bytes);
  stats.written = Bytes(level.tier.written_bytes + level.tier.gc_bytes);
  stats.on_disk = Bytes(level.tier.disk_bytes);
  stats.index = Bytes(level.tier.index_bytes);
  stats.buffers = Bytes(level.tier.buffer_bytes);
  return stats;
}

TierStatistics StatsOfTiers(const TableParts& core) {
  const LowerTiers& tiers = core.cache->tiers;
  const HostRows::Stats& host = core.cache->host.stats();
  TierStatistics stats;
  stats.host_rows = Count(core.Rows());
  stats.host_capacity_rows = core.cache->host.Capacity();
  stats.looked_up_keys = Count(host.looked_up);
  stats.host_hits = Count(host.hits);
  stats.host_misses = Count(host.misses);
  stats.prefetched_rows = Count(core.cache->prefetcher.promoted());
  stats.demoted_rows = Count(host.demoted);
  stats.lookup_wait = Seconds(host.lookup_wait);
  stats.prefetch_wait = Seconds(core.cache->prefetcher.waited());
  stats.evaluated_keys = Count(host.evaluated);
  stats.evaluated_host_hits = Count(host.read_in_host);
  stats.evaluated_below_hits = Count(host.read_below);
  stats.evaluation_wait = Seconds(host.evaluation_wait);
  stats.lower_rows = tiers.rows();
  stats.failed_evictions = Count(core.cache->eviction.failures());
  if (!tiers.opened()) return stats;
  stats.queued_rows = Count(tiers.queued_rows());
  for (const LowerTiers::Level& level : tiers.Levels()) stats.levels.push_back(StatsOf(level));
  return stats;
}

}  // namespace

TableStats Table::Stats() {
  return TableGuard::Run(&core_, [&] {
    TableStats stats;
    size_t host_rows = 0, index_entries = 0;
    for (const auto& shard : core_.shards) {
      host_rows += shard->size();
      index_entries += shard->index_entries();
      stats.candidates += Count(shard->candidates().size());
      stats.candidate_memory += Bytes(shard->candidates().bytes());
      const ShardMemory memory = shard->memory();
      stats.row_memory += Bytes(memory.rows);
      stats.index += Bytes(memory.index);
      stats.change_log += Bytes(memory.changes + shard->evictions().bytes());
      stats.digests += Bytes(memory.digests);
      const ShardStats& happened = shard->stats();
      stats.inserted += Count(happened.inserted);
      stats.rejected += Count(happened.rejected);
      stats.evicted_by_age += Count(happened.evicted_by_age);
      stats.evicted_by_capacity += Count(happened.evicted_by_capacity);
      stats.evicted_by_norm += Count(happened.evicted_by_norm);
      stats.erased += Count(happened.erased);
    }
    stats.rows = Count(engine_.reader.Count());
    if (core_.quantised != nullptr) {
      const QuantisedRows::Memory memory = core_.quantised->MemoryHeld();
      host_rows = memory.rows;
      index_entries = memory.entries;
      stats.row_memory += Bytes(memory.slabs);
      stats.index += Bytes(memory.index);
    }
    stats.metadata = Bytes(host_rows * engine_.quantised.MetadataBytes());
    stats.load_factor = index_entries == 0
                            ? 0.0
                            : static_cast<double>(host_rows) / static_cast<double>(index_entries);
    stats.buffers = Bytes(core_.lookups.bytes());
    stats.step = core_.context.step;
    stats.event_time = core_.context.time;
    stats.state_width = core_.context.layout.state_width;
    if (core_.cache != nullptr) stats.tiers = StatsOfTiers(core_);
    if (engine_.device_cache != nullptr) stats.device = engine_.device_cache->Stats();
    return stats;
  });
}

}  // namespace msrec
