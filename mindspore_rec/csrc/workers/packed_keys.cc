// SPDX-License-Identifier: Apache-2.0
#include "workers/packed_keys.h"

#include "rows/for_shards.h"
#include "rows/row_layout.h"
#include "util/bytes.h"

namespace msrec {

void PackedKeys::Plan(Batch* batch, const Placement& placement) {
  const size_t parts = placement.replicated() ? 1 : placement.workers;
  const size_t keys = batch->begin[kNumShards];
  part_of_.Reset(keys);
  number_.Reset(keys);
  written_.assign(kNumShards * parts, 0);
  ForShards(*batch, [&](int s) {
    if (!batch->made_unique) batch->MakeUnique(s);
    const size_t first = batch->begin[s];
    size_t* count = written_.data() + s * parts;
    for (size_t i = first; i < first + batch->unique[s]; ++i) {
      const uint32_t part = parts == 1 ? 0 : placement.OwnerOf(batch->key[i]);
      part_of_[i] = static_cast<uint16_t>(part);
      ++count[part];
    }
  });
  batch->made_unique = true;
  counts_.assign(parts, 0);
  begin_.assign(parts, 0);
  total_ = 0;
  for (size_t p = 0; p < parts; ++p) {
    begin_[p] = total_;
    for (int s = 0; s < kNumShards; ++s) {
      size_t& slot = written_[s * parts + p];
      const size_t count = slot;
      slot = total_;  // from now on the place of the shard's next key
      total_ += count;
    }
    counts_[p] = total_ - begin_[p];
  }
  ForShards(*batch, [&](int s) {
    const size_t first = batch->begin[s];
    size_t* next = written_.data() + s * parts;
    for (size_t i = first; i < first + batch->unique[s]; ++i) {
      number_[i] = static_cast<uint32_t>(next[part_of_[i]]++);
    }
  });
}

void PackedKeys::Write(const Batch& batch, int64_t* const* keys,
                       uint32_t* const* occurrences) const {
  ForShards(batch, [&](int s) {
    const size_t first = batch.begin[s];
    for (size_t i = first; i < first + batch.unique[s]; ++i) {
      const size_t part = part_of_[i];
      const size_t at = number_[i] - begin_[part];
      keys[part][at] = batch.key[i];
      if (occurrences != nullptr) occurrences[part][at] = batch.Occurrences(i);
    }
  });
}

void PackedKeys::Point(Batch* batch, char* const* rows, size_t row_bytes) const {
  ForShards(*batch, [&](int s) {
    const size_t first = batch->begin[s];
    for (size_t i = first; i < first + batch->unique[s]; ++i) {
      const size_t part = part_of_[i];
      batch->row[i] = rows[part] + (number_[i] - begin_[part]) * row_bytes - sizeof(RowMeta);
    }
  });
}

void PackedKeys::Sum(Batch* batch, const Gradient& grad, int dim, const Kernels& kernels,
                     float* sums) const {
  ZeroBytes(sums, total_ * static_cast<size_t>(dim) * sizeof(float));
  ForShards(*batch, [&](int s) {
    const size_t first = batch->begin[s];
    const size_t positions = batch->begin[s + 1] - first;
    uint32_t* slots = batch->inverse.data() + first;
    for (size_t i = 0; i < positions; ++i) slots[i] = number_[first + slots[i]];
    AddGradient(kernels, slots, batch->pos.data() + first, positions, grad,
                batch->pooled ? batch->bag.data() : nullptr,
                batch->pooled ? batch->weight.data() : nullptr, dim, sums);
  });
}

}  // namespace msrec
