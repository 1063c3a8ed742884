// SPDX-License-Identifier: Apache-2.0
#include "table/core/candidates.h"

#include <algorithm>

#include "rows/batch.h"
#include "table/core/shard_context.h"

namespace msrec {
namespace {

// Number of counters that are compared when one counter must be dropped. The counter with the
// lowest count is dropped; among equal counts, the oldest counter is dropped.
constexpr int kCompared = 8;

int64_t ShareOf(int64_t total, int shard) {
  return total / kNumShards + (shard < total % kNumShards ? 1 : 0);
}

}  // namespace

Candidates::Candidates(const ShardContext* context, int number)
    : context_(context),
      bound_(context->admission.max_candidates < 0
                 ? -1
                 : std::max<int64_t>(
                       ShareOf(context->placement.Share(context->admission.max_candidates), number),
                       1)),
      store_(sizeof(RowMeta)),
      index_(new Index(&store_)),
      sketch_(context->admission.kind == AdmissionKind::kSketch
                  ? static_cast<size_t>(context->admission.sketch_bytes) / kNumShards
                  : 0,
              context->admission.sketch_bits) {}

bool Candidates::HasRoom(size_t keys) const {
  const Admission& admission = context_->admission;
  if (admission.kind != AdmissionKind::kCount || admission.immediate()) return true;
  if (bound_ >= 0) keys = std::min(keys, static_cast<size_t>(bound_));
  return store_.room() >= keys;
}

void Candidates::Reserve(size_t keys) {
  if (HasRoom(keys)) return;
  store_.Reserve(bound_ >= 0 ? std::min(keys, static_cast<size_t>(bound_)) : keys);
}

bool Candidates::Admit(uint64_t hash, int64_t key, uint32_t occurrences, uint32_t* before) {
  const Admission& admission = context_->admission;
  *before = 0;
  if (admission.frozen()) return false;
  if (admission.kind == AdmissionKind::kProbability) {
    return admission.immediate() ||
           admission.Throw(key, context_->step, context_->initializer.seed, occurrences);
  }
  if (admission.kind == AdmissionKind::kSketch) return AdmitBySketch(key, occurrences, before);
  // Even if admission is immediate now, there may be counters from the time when the threshold was
  // higher.
  if (admission.immediate() && index_->size() == 0) return true;
  uint32_t id = FindCounter(hash, key);
  *before = id == Index::kNone ? 0 : Meta(store_.Row(id))->count;
  const uint32_t count = std::min(kMaxCount - *before, occurrences) + *before;
  if (admission.immediate() || admission.Admits(count)) {
    if (id != Index::kNone) Drop(hash, id);
    return true;
  }
  if (id == Index::kNone) id = Insert(hash, key);
  RowMeta* meta = Meta(store_.Row(id));
  meta->count = count;
  meta->last_step = ClampStep(context_->step);
  meta->last_time = context_->time;
  return false;
}

uint32_t Candidates::Insert(uint64_t hash, int64_t key) {
  if (bound_ >= 0 && static_cast<int64_t>(index_->size()) >= bound_) DropOne();
  const uint32_t id = store_.Allocate();
  Meta(store_.Row(id))->key = key;
  Meta(store_.Row(id))->live = 1;
  try {
    index_->Insert(hash, id);
  } catch (...) {
    store_.Free(id);
    throw;
  }
  return id;
}

void Candidates::Export(std::vector<RowMeta>* counters) const {
  for (uint32_t id = 0; id < store_.end(); ++id) {
    const RowMeta* meta = Meta(store_.Row(id));
    if (meta->live && !context_->Due(*meta)) counters->push_back(*meta);
  }
}

void Candidates::Import(uint64_t hash, const RowMeta& counter) {
  uint32_t id = index_->Find(hash, counter.key);
  if (id == Index::kNone) id = Insert(hash, counter.key);
  RowMeta* meta = Meta(store_.Row(id));
  meta->count = counter.count;
  meta->last_step = counter.last_step;
  meta->last_time = counter.last_time;
}

bool Candidates::AdmitBySketch(int64_t key, uint32_t occurrences, uint32_t* before) {
  const uint64_t hash = HashKey(key);  // a constant hash function, because sketches are exported
  const Admission& admission = context_->admission;
  const uint32_t epoch = context_->epochs.number;
  *before = sketch_.Estimate(hash, epoch);
  const uint32_t room = sketch_.max_count() - *before;
  if (admission.immediate() || admission.Admits(*before + std::min(occurrences, room))) {
    sketch_.Subtract(hash, epoch, *before);
    return true;
  }
  sketch_.Add(hash, epoch, occurrences);
  return false;
}

// Return the place of a key's counter. If the age of the counter has reached the limit, drop the
// counter.
uint32_t Candidates::FindCounter(uint64_t hash, int64_t key) {
  const uint32_t id = index_->Find(hash, key);
  if (id == Index::kNone || !context_->Due(*Meta(store_.Row(id)))) return id;
  Drop(hash, id);
  return Index::kNone;
}

uint32_t Candidates::Count(uint64_t hash, int64_t key) {
  if (context_->admission.kind == AdmissionKind::kSketch) {
    return sketch_.Estimate(HashKey(key), context_->epochs.number);
  }
  const uint32_t id = FindCounter(hash, key);
  return id == Index::kNone ? 0 : Meta(store_.Row(id))->count;
}

void Candidates::Forget(uint64_t hash, int64_t key) {
  if (context_->admission.kind == AdmissionKind::kSketch) {
    const uint32_t epoch = context_->epochs.number;
    const uint64_t constant = HashKey(key);
    sketch_.Subtract(constant, epoch, sketch_.Estimate(constant, epoch));
    return;
  }
  const uint32_t id = index_->Erase(hash, key);
  if (id != Index::kNone) store_.Free(id);
}

void Candidates::Drop(uint64_t hash, uint32_t id) {
  index_->Erase(hash, Meta(store_.Row(id))->key);
  store_.Free(id);
}

// Drop one counter. Requires: there is at least one counter.
void Candidates::DropOne() {
  uint32_t chosen = Index::kNone;
  int compared = 0;
  for (uint32_t looked = 0; looked < store_.end() && compared < kCompared; ++looked) {
    if (hand_ >= store_.end()) hand_ = 0;
    const uint32_t id = hand_++;
    const RowMeta* meta = Meta(store_.Row(id));
    if (!meta->live) continue;
    ++compared;
    if (chosen == Index::kNone) chosen = id;
    const RowMeta* least = Meta(store_.Row(chosen));
    if (meta->count < least->count ||
        (meta->count == least->count && meta->last_step < least->last_step)) {
      chosen = id;
    }
  }
  Drop(IndexHash(Meta(store_.Row(chosen))->key), chosen);
}

void Candidates::Evict(uint32_t id) {
  const RowMeta* meta = Meta(store_.Row(id));
  if (meta->live && context_->Due(*meta)) Drop(IndexHash(meta->key), id);
}

void Candidates::StampTime() {
  for (uint32_t id = 0; id < store_.end(); ++id) {
    RowMeta* meta = Meta(store_.Row(id));
    if (meta->live && meta->last_time == 0) meta->last_time = context_->time;
  }
}

std::unique_ptr<Index> Candidates::Emptied() const { return std::make_unique<Index>(&store_); }

void Candidates::Clear(std::unique_ptr<Index> empty) noexcept {
  SlabStore none(sizeof(RowMeta));
  store_.Swap(&none);
  index_ = std::move(empty);
  sketch_.Clear();
  hand_ = 0;
}

}  // namespace msrec
