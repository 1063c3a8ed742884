// SPDX-License-Identifier: Apache-2.0
//
// Statistics of a table (Table::Stats): current amounts, and counts of events since the table's
// creation. ForEachStatistic is the only function that contains the names of the statistics.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "util/units.h"

namespace msrec {

// Statistics of a tier below host memory.
struct LevelStats {
  std::string kind;  // "remote" or "ssd"
  int64_t rows = 0;
  int64_t hits = 0;          // rows found there
  int64_t written_rows = 0;  // taken over from the tier above
  int64_t spilled_rows = 0;  // handed to the next tier
  Bytes read;
  Bytes written;  // garbage collection included
  Bytes on_disk;
  Bytes index;    // of memory
  Bytes buffers;  // of memory
};

// Statistics of a table with tiers below host memory.
struct TierStatistics {
  int64_t host_rows = 0;
  int64_t host_capacity_rows = 0;
  int64_t looked_up_keys = 0;  // distinct keys of training lookups
  int64_t host_hits = 0;       // of these, those in host memory
  int64_t host_misses = 0;     // of these, those that the lookup itself had to read
  int64_t prefetched_rows = 0;
  int64_t demoted_rows = 0;          // that left host memory for a lower tier
  Seconds lookup_wait{0};            // of lookups, for rows
  Seconds prefetch_wait{0};          // of batches, for their prefetch
  int64_t evaluated_keys = 0;        // distinct keys of lookups that change nothing
  int64_t evaluated_host_hits = 0;   // of these, those in host memory
  int64_t evaluated_below_hits = 0;  // of these, those in a lower tier; the other keys have no row
  Seconds evaluation_wait{0};        // of these lookups, for rows
  int64_t lower_rows = 0;            // rows that are in lower tiers only
  int64_t failed_evictions = 0;  // how often a failing tier has delayed part of a step's eviction
  std::optional<int64_t> queued_rows;  // on their way to the first level, if a tier is open
  std::vector<LevelStats> levels;
};

// Statistics of a table with a device cache.
struct DeviceStats {
  int64_t rows = 0;
  int64_t capacity_rows = 0;
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t written_back_rows = 0;  // from the device to the host
  Bytes memory;
};

struct TableStats {
  int64_t rows = 0;        // in all tiers, including rows that are due and not swept yet
  int64_t candidates = 0;  // exact counters of keys without a row
  // Allocated memory, including room for growth.
  Bytes row_memory;  // slabs
  Bytes metadata;    // part of the slabs: metadata of the rows in host memory
  Bytes index;
  Bytes candidate_memory;
  Bytes change_log;
  Bytes digests;
  Bytes buffers;
  double load_factor = 0.0;  // of the index
  int64_t inserted = 0;
  int64_t rejected = 0;
  int64_t evicted_by_age = 0;
  int64_t evicted_by_capacity = 0;
  int64_t evicted_by_norm = 0;
  int64_t erased = 0;
  int64_t step = 0;
  int64_t event_time = 0;   // whole seconds since 1970; 0: no batch had one
  int64_t state_width = 0;  // numbers of a row's optimizer state and score
  std::optional<TierStatistics> tiers;
  std::optional<DeviceStats> device;

  int64_t evicted() const { return evicted_by_age + evicted_by_capacity + evicted_by_norm; }
};

// Calls fn(name, value) for each statistic; a value is an int64_t, a double, Bytes or Seconds.
template <typename Fn>
void ForEachStatistic(const TableStats& stats, Fn fn) {
  fn("rows", stats.rows);
  fn("candidates", stats.candidates);
  fn("row_bytes", stats.row_memory);
  fn("metadata_bytes", stats.metadata);
  fn("index_bytes", stats.index);
  fn("candidate_bytes", stats.candidate_memory);
  fn("change_log_bytes", stats.change_log);
  fn("digest_bytes", stats.digests);
  fn("buffer_bytes", stats.buffers);
  fn("load_factor", stats.load_factor);
  fn("inserted", stats.inserted);
  fn("rejected", stats.rejected);
  fn("evicted", stats.evicted());
  fn("evicted_by_age", stats.evicted_by_age);
  fn("evicted_by_capacity", stats.evicted_by_capacity);
  fn("evicted_by_norm", stats.evicted_by_norm);
  fn("erased", stats.erased);
  fn("step", stats.step);
  fn("event_time", stats.event_time);
  fn("state_width", stats.state_width);
  if (stats.tiers) {
    const TierStatistics& tiers = *stats.tiers;
    fn("host_rows", tiers.host_rows);
    fn("host_capacity_rows", tiers.host_capacity_rows);
    fn("looked_up_keys", tiers.looked_up_keys);
    fn("host_hits", tiers.host_hits);
    fn("host_misses", tiers.host_misses);
    fn("prefetched_rows", tiers.prefetched_rows);
    fn("written_down_rows", tiers.demoted_rows);
    fn("lookup_wait_seconds", tiers.lookup_wait);
    fn("prefetch_wait_seconds", tiers.prefetch_wait);
    fn("evaluated_keys", tiers.evaluated_keys);
    fn("evaluated_host_hits", tiers.evaluated_host_hits);
    fn("evaluated_below_hits", tiers.evaluated_below_hits);
    fn("evaluation_wait_seconds", tiers.evaluation_wait);
    fn("below_rows", tiers.lower_rows);
    fn("failed_evictions", tiers.failed_evictions);
    if (tiers.queued_rows) fn("queued_rows", *tiers.queued_rows);
    for (const LevelStats& level : tiers.levels) {
      fn(level.kind + "_rows", level.rows);
      fn(level.kind + "_hits", level.hits);
      fn(level.kind + "_written_rows", level.written_rows);
      fn(level.kind + "_spilled_rows", level.spilled_rows);
      fn(level.kind + "_read_bytes", level.read);
      fn(level.kind + "_written_bytes", level.written);
      fn(level.kind + "_disk_bytes", level.on_disk);
      fn(level.kind + "_index_bytes", level.index);
      fn(level.kind + "_buffer_bytes", level.buffers);
    }
  }
  if (stats.device) {
    const DeviceStats& device = *stats.device;
    fn("device_rows", device.rows);
    fn("device_capacity_rows", device.capacity_rows);
    fn("device_hits", device.hits);
    fn("device_misses", device.misses);
    fn("device_written_rows", device.written_back_rows);
    fn("device_bytes", device.memory);
  }
}

}  // namespace msrec
