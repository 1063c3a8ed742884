// SPDX-License-Identifier: Apache-2.0
#include "table/batch_lookup.h"

#include "rows/for_shards.h"
#include "table/cache/row_cache.h"
#include "table/core/row_rules.h"
#include "util/headroom.h"

namespace msrec {

bool BatchLookup::ReserveRows(Batch* batch, LookupPurpose purpose, const PendingRows* pending) {
  const auto before = [&](int s) { return pending == nullptr ? 0 : pending->keys[s]; };
  bool unique = batch->made_unique || pending != nullptr;
  for (int s = 0; Inserts(purpose) && s < kNumShards; ++s) {
    const size_t positions = batch->begin[s + 1] - batch->begin[s];
    if (!core_.shards[s]->HasRoom(positions)) unique = true;
    core_.shards[s]->ReserveNotes(before(s) + positions);
  }
  if (!unique) return false;
  // A batch may have far fewer distinct keys than positions, so memory is reserved for the distinct
  // keys only.
  if (!batch->made_unique) ForShards(*batch, [&](int s) { batch->MakeUnique(s); });
  for (int s = 0; s < kNumShards; ++s) {
    if (batch->begin[s + 1] == batch->begin[s]) continue;
    core_.shards[s]->Reserve(before(s) + batch->unique[s]);
  }
  return true;
}

void BatchLookup::ReadUnseen(Batch* batch, int s) {
  const size_t stride = core_.context.layout.stride();
  for (size_t i = batch->begin[s]; i < batch->begin[s] + batch->unique[s]; ++i) {
    if (batch->row[i] != nullptr) continue;
    char* copy = batch->copies.data() + i * stride;
    WriteFirst(core_.context, copy, batch->key[i]);
    batch->row[i] = copy;
  }
}

void BatchLookup::Run(Batch* batch, LookupPurpose purpose, const float* unknown,
                      const RowsOut& out) {
  if (!batch->on_device) core_.RequireWrittenBack();
  bool unique = true;
  if (core_.cache != nullptr) {
    core_.cache->host.Promote(batch, purpose);
  } else {
    unique = ReserveRows(batch, purpose, nullptr);
  }
  if (Inserts(purpose)) RequireHeadroom(HeadroomForKeys(batch->n));
  Fetch(batch, purpose, unique, unknown, out);
}

void BatchLookup::Prepare(Batch* batch, PendingRows* pending) {
  core_.RequireWrittenBack();
  if (core_.cache != nullptr) {
    core_.cache->host.Promote(batch, LookupPurpose::kTrain, pending);
  } else {
    ReserveRows(batch, LookupPurpose::kTrain, pending);
  }
  batch->made_unique = true;
  RequireHeadroom(HeadroomForKeys(pending->total + batch->n));
  for (int s = 0; s < kNumShards; ++s) {
    if (batch->begin[s + 1] == batch->begin[s]) continue;
    pending->keys[s] += batch->unique[s];
    pending->total += batch->unique[s];
  }
}

void BatchLookup::Finish(Batch* batch, bool moved, const float* unknown, const RowsOut& out) {
  if (moved && core_.cache != nullptr) {
    core_.cache->host.Promote(batch, LookupPurpose::kTrain);
  } else {
    // ReserveRows allocates memory only if other lookups have used the memory that was reserved for
    // this lookup.
    ReserveRows(batch, LookupPurpose::kTrain, nullptr);
  }
  // The index must be read again, because another lookup may have inserted some of the batch's
  // keys.
  batch->probed = false;
  Fetch(batch, LookupPurpose::kTrain, true, unknown, out);
}

void BatchLookup::Fetch(Batch* batch, LookupPurpose purpose, bool unique, const float* unknown,
                        const RowsOut& out) {
  const int dim = core_.config.dim;
  if (out && batch->begin[kNumShards] < batch->n) {
    ZeroRows(out, batch->n, batch->stride, dim);
  }
  const bool unseen =
      core_.context.has_unseen() && core_.cache == nullptr && purpose == LookupPurpose::kEvaluate;
  if (unseen) batch->copies.Reset(batch->begin[kNumShards] * core_.context.layout.stride());
  const bool write_back = core_.device != nullptr && !batch->on_device;
  ForShards(*batch, [&](int s) {
    if (!unique) batch->MakeUnique(s);
    core_.shards[s]->Resolve(batch, purpose);
    if (unseen) ReadUnseen(batch, s);
    const size_t first = batch->begin[s];
    for (size_t i = 0; write_back && i < batch->unique[s]; ++i) {
      if (batch->row[first + i] != nullptr) core_.device->WriteBack(batch->key[first + i]);
    }
    if (!out) return;
    GatherRows(*core_.context.row_kernels, batch->row.data() + first, batch->inverse.data() + first,
               batch->pos.data() + first, batch->begin[s + 1] - first, unknown, dim, out);
  });
}

}  // namespace msrec
