// SPDX-License-Identifier: Apache-2.0
#include "table/cache/host_rows.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

#include "util/headroom.h"

namespace msrec {
namespace {

// A call with many keys is split into parts, so that rows can be demoted between two parts. The
// number of keys in a part is a quarter of the number of rows that fit into host memory.
constexpr int64_t kParts = 4;

class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    *seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  double* seconds_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

int64_t HostRows::Capacity() const {
  const CacheSettings& settings = tiers_.settings();
  if (settings.host_rows >= 0) return settings.host_rows;
  const auto row_bytes = static_cast<int64_t>(RowSizes(upper_.context().layout).in_host(true));
  return std::max<int64_t>(settings.host_bytes / row_bytes, 1);
}

size_t HostRows::PartKeys() const {
  return static_cast<size_t>(std::max<int64_t>(Capacity() / kParts, 1));
}

// ---------------------------------------------------------------- demote

size_t HostRows::Demote(size_t rows, bool prefetched) {
  const bool by_count = tiers_.settings().by_count;
  const VictimCandidates victims = upper_.Victims(rows, by_count, prefetched);
  const size_t demoted = victims.size();
  if (demoted == 0) return 0;
  tiers_.EraseDeparted();
  for (size_t first = 0; first < demoted; first += LowerTiers::kPartRows) {
    const size_t last = std::min(demoted, first + LowerTiers::kPartRows);
    std::vector<int64_t> keys;
    std::vector<char> blocks;
    keys.reserve(last - first);
    blocks.reserve((last - first) * upper_.context().layout.stride());
    for (size_t i = first; i < last; ++i) {
      upper_.CopyOut(victims[i], &keys, &blocks);
    }
    tiers_.Write(std::move(keys), std::move(blocks));
    // The rows are in the queue now, and the code below cannot fail.
    for (size_t i = first; i < last; ++i) upper_.Free(victims[i]);
    tiers_.AddRows(static_cast<int64_t>(last - first));
    stats_.demoted += last - first;
  }
  return demoted;
}

size_t HostRows::MakeRoom(size_t rows, bool prefetching) {
  const int64_t capacity = Capacity();
  const auto over = [&] {
    return static_cast<int64_t>(upper_.rows()) + static_cast<int64_t>(rows) - capacity;
  };
  for (const bool prefetched : {false, true}) {
    if (prefetched && prefetching) break;
    while (over() > 0 && Demote(static_cast<size_t>(over()), prefetched) > 0) {
    }
  }
  const int64_t still = over();
  if (still <= 0) return rows;
  if (prefetching) {
    return static_cast<size_t>(std::max<int64_t>(static_cast<int64_t>(rows) - still, 0));
  }
  const int64_t least = capacity + still;
  const bool by_rows = tiers_.settings().host_rows >= 0;
  const auto row_bytes = static_cast<int64_t>(RowSizes(upper_.context().layout).in_host(true));
  throw std::invalid_argument(
      upper_.Where((by_rows ? "host_rows=" + std::to_string(capacity)
                            : "host_bytes=" + std::to_string(tiers_.settings().host_bytes) + " (" +
                                  std::to_string(capacity) + " rows)") +
                   " is too small for the distinct keys of one step; the least that works is " +
                   (by_rows ? std::to_string(least) : std::to_string(least * row_bytes))));
}

// ---------------------------------------------------------------- promote

std::vector<int64_t> HostRows::AbsentKeys(const Batch& batch, const PendingRows& pending,
                                          const std::vector<uint32_t>* missing,
                                          const std::vector<uint32_t>& at, const bool* found) {
  std::vector<int64_t> absent = pending.absent;
  size_t next = 0;  // `at` contains some of the missing positions, in the same order
  for (int s = 0; s < kNumShards; ++s) {
    for (const uint32_t i : missing[s]) {
      const bool read = next < at.size() && at[next] == i;
      if (!(read && found[next])) absent.push_back(batch.key[i]);
      next += read;
    }
  }
  if (!pending.absent.empty()) {  // if empty, the keys are already distinct
    std::sort(absent.begin(), absent.end());
    absent.erase(std::unique(absent.begin(), absent.end()), absent.end());
  }
  return absent;
}

void HostRows::Promote(Batch* batch, LookupPurpose purpose, PendingRows* pending) {
  const bool reads = purpose == LookupPurpose::kEvaluate;
  const bool trains = purpose == LookupPurpose::kTrain;
  bool replaces = purpose == LookupPurpose::kReplace;
  const Hold hold = HoldFor(purpose);
  std::vector<uint32_t> missing[kNumShards];
  upper_.FindInHost(batch, hold, missing);
  batch->probed = true;
  std::vector<uint32_t> at;
  std::vector<int64_t> keys;
  size_t all_missing = 0;
  size_t looked_up = 0;
  const bool fetched = !tiers_.fetches().empty();
  for (int s = 0; s < kNumShards; ++s) {
    if (batch->begin[s + 1] == batch->begin[s]) continue;
    looked_up += batch->unique[s];
    all_missing += missing[s].size();
    for (const uint32_t i : missing[s]) {
      if (fetched && tiers_.fetches().KnownAbsent(batch->key[i])) continue;
      at.push_back(i);
      keys.push_back(batch->key[i]);
    }
  }
  std::vector<char> rows;
  std::unique_ptr<bool[]> found;
  {
    double other = 0.0;
    double* const seconds =
        trains ? &stats_.lookup_wait : (reads ? &stats_.evaluation_wait : &other);
    const Stopwatch watch(seconds);
    if (replaces && upper_.KeepsDigest()) {
      // Read the old rows before they are replaced, because their digests must be subtracted.
      try {
        tiers_.Read(keys, &rows, &found);
        replaces = false;
      } catch (const RowDamaged&) {
        upper_.DropDigest();  // replacing a damaged row repairs the row
      }
    }
    if (replaces || found == nullptr) tiers_.Read(keys, replaces ? nullptr : &rows, &found);
  }
  if (reads) {
    stats_.evaluated += looked_up;
    stats_.read_in_host += looked_up - all_missing;
    stats_.read_below +=
        static_cast<uint64_t>(std::count(found.get(), found.get() + at.size(), true));
    ReadThrough(batch, missing, at, rows, found.get());
    return;
  }
  if (trains) {
    stats_.looked_up += looked_up;
    stats_.hits += looked_up - all_missing;
  }
  std::vector<int64_t> absent;
  size_t needed = all_missing;
  if (pending != nullptr) {
    absent = AbsentKeys(*batch, *pending, missing, at, found.get());
    needed =
        absent.size() + static_cast<size_t>(std::count(found.get(), found.get() + at.size(), true));
  }
  MakeRoom(needed, false);
  upper_.Reserve(*batch, missing, pending);
  RequireHeadroom(HeadroomForKeys(all_missing));
  if (pending != nullptr) pending->absent.swap(absent);
  int64_t promoted = 0;
  const auto note = [&] {
    tiers_.AddRows(-promoted);
    if (trains) stats_.misses += static_cast<uint64_t>(promoted);
  };
  try {
    upper_.Promote(batch, at, keys, replaces ? nullptr : rows.data(), found.get(), hold, &promoted);
  } catch (...) {
    note();
    throw;
  }
  note();
}

void HostRows::ReadThrough(Batch* batch, const std::vector<uint32_t>* missing,
                           const std::vector<uint32_t>& at, const std::vector<char>& rows,
                           const bool* found) {
  const size_t stride = upper_.context().layout.stride();
  const bool is_static = upper_.context().is_static();
  size_t copies = 0;
  for (size_t j = 0; j < at.size(); ++j) copies += found[j];
  if (is_static) {
    copies = 0;
    for (int s = 0; s < kNumShards; ++s) copies += missing[s].size();
  }
  char* next = batch->copies.Reset(copies * stride);
  for (size_t j = 0; j < at.size(); ++j) {
    if (!found[j]) continue;
    std::memcpy(next, rows.data() + j * stride, stride);
    const char* row = msrec::ReadThrough(upper_.context(), next);
    batch->row[at[j]] = const_cast<char*>(row);
    if (row != nullptr) next += stride;  // a null row does not need its block
  }
  for (int s = 0; is_static && s < kNumShards; ++s) {
    for (const uint32_t i : missing[s]) {
      if (batch->row[i] != nullptr) continue;
      WriteFirst(upper_.context(), next, batch->key[i]);
      // Only this evaluation reads the copy; with the step 0, the copy would be due for eviction.
      Meta(next)->last_step = ClampStep(upper_.context().step);
      Meta(next)->last_time = upper_.context().time;
      batch->row[i] = next;
      next += stride;
    }
  }
}

}  // namespace msrec
