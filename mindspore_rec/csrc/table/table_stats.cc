// SPDX-License-Identifier: Apache-2.0
//
// Table: statistics.
#include "table/table_stats.h"

#include "table/table_guard.h"

namespace msrec {
namespace {

int64_t Count(uint64_t n) { return static_cast<int64_t>(n); }

LevelStats StatsOf(const TierChain& chain, size_t level) {
  const TierChain::Traffic traffic = chain.traffic(level);
  const TierStats tier = chain.levels()[level].tier->Stats();
  LevelStats stats;
  stats.kind = chain.levels()[level].kind;
  stats.rows = Count(tier.rows);
  stats.hits = Count(traffic.hits);
  stats.written_rows = Count(traffic.written_rows);
  stats.spilled_rows = Count(traffic.spilled_rows);
  stats.read = Bytes(tier.read_bytes);
  stats.written = Bytes(tier.written_bytes + tier.gc_bytes);
  stats.on_disk = Bytes(tier.disk_bytes);
  stats.index = Bytes(tier.index_bytes);
  stats.buffers = Bytes(tier.buffer_bytes);
  return stats;
}

}  // namespace

TierStatistics Table::StatsOfTiers() const {
  const Below& below = *below_;
  TierStatistics stats;
  stats.host_rows = Count(core_.Rows());
  stats.host_capacity_rows = HostCapacity();
  stats.looked_up_keys = Count(below.asked);
  stats.host_hits = Count(below.host_hits);
  stats.host_misses = Count(below.host_misses);
  stats.prefetched_rows = Count(below.prefetched);
  stats.demoted_rows = Count(below.written_down);
  stats.lookup_wait = Seconds(below.lookup_wait);
  stats.prefetch_wait = Seconds(below.prefetch_wait);
  stats.lower_rows = below.rows;
  stats.failed_evictions = Count(below.failed_evictions);
  if (below.queue == nullptr) return stats;
  stats.queued_rows = Count(below.queue->waiting_rows());
  for (size_t i = 0; i < below.chain->levels().size(); ++i) {
    stats.levels.push_back(StatsOf(*below.chain, i));
  }
  return stats;
}

TableStats Table::Stats() {
  return Guard::Run(this, [&] {
    TableStats stats;
    size_t host_rows = 0, index_slots = 0;
    for (const auto& shard : core_.shards) {
      host_rows += shard->size();
      index_slots += shard->index_slots();
      stats.candidates += Count(shard->candidates().size());
      stats.candidate_memory += Bytes(shard->candidates().bytes());
      stats.row_memory += Bytes(shard->row_bytes());
      stats.index += Bytes(shard->index_bytes());
      stats.change_log += Bytes(shard->log_bytes() + shard->evictions().bytes());
      const ShardStats& happened = shard->stats();
      stats.inserted += Count(happened.inserted);
      stats.rejected += Count(happened.rejected);
      stats.evicted_by_age += Count(happened.evicted_by_age);
      stats.evicted_by_capacity += Count(happened.evicted_by_capacity);
      stats.evicted_by_norm += Count(happened.evicted_by_norm);
      stats.erased += Count(happened.erased);
    }
    stats.rows = Count(AllRows());
    stats.metadata = Bytes(host_rows * sizeof(RowMeta));
    stats.load_factor =
        index_slots == 0 ? 0.0 : static_cast<double>(host_rows) / static_cast<double>(index_slots);
    stats.buffers = Bytes(core_.lookups.bytes());
    stats.step = core_.context.step;
    stats.event_time = core_.context.time;
    stats.state_width = core_.context.layout.state_width;
    if (below_ != nullptr) stats.tiers = StatsOfTiers();
    if (device_ != nullptr) stats.device = device_->Stats();
    return stats;
  });
}

}  // namespace msrec
