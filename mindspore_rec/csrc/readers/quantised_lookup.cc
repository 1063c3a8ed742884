// SPDX-License-Identifier: Apache-2.0
//
// QuantisedRows: lookups.
#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>

#include "readers/quantised_rows.h"
#include "readers/read_ahead.h"
#include "util/bucket_hash.h"
#include "util/for_blocks.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

constexpr size_t kIdsOfBlock = 4096;  // ids of a task, if all threads have enough tasks

// Returns the number of items (ids or bags) per task, for n items with `ids` ids in total.
size_t BlockOf(size_t n, size_t ids) {
  const auto threads = static_cast<size_t>(ThreadPool::Global().num_threads());
  const size_t by_ids = kIdsOfBlock * n / std::max<size_t>(ids, 1);
  return std::max<size_t>(1, std::min(by_ids, (n + 4 * threads - 1) / (4 * threads)));
}

}  // namespace

// Finds the rows of ids [first, last), in the order of the ids.
template <bool kStatic>
class QuantisedRows::Finder : public ReadAhead<Finder<kStatic>> {
  using Base = ReadAhead<Finder<kStatic>>;

 public:
  Finder(const QuantisedRows& rows, const IdView& ids, const IdFilter& filter,
         const AgeLimit* limit, size_t first, size_t last)
      : Base(first, last),
        rows_(rows),
        ids_(ids),
        filter_(filter),
        limit_(limit),
        filters_(filter.has_padding || filter.bounded()),
        header_(rows.layout_.header()),
        stride_(rows.layout_.stride()) {
    this->Begin();
  }

  // Return the row of the next id, as the address of the row's scale. Return null if the id has no
  // row, and &kDroppedRow if the filter drops the id.
  const char* Next() {
    const size_t i = this->Advance();
    const int64_t id = ids_[i];
    if (filters_ && filter_.Drops(id)) return &kDroppedRow;
    const char* row;
    if constexpr (kStatic) {
      row = rows_.FindRow(id);
    } else {
      row = probable_[i % kRing];
      // An index tag has only 8 bits of the hash, so the candidate may be the row of another key.
      if (row == nullptr || KeyOfQuantised(row) != id) row = rows_.FindRow(id);
    }
    return row == nullptr || rows_.IsOld(row, limit_) ? nullptr : row + header_;
  }

 private:
  friend Base;
  using Base::kRing;

  void LoadIndex(size_t i) {
    if constexpr (!kStatic) {
      const uint64_t hash = IndexHash(ids_[i]);
      hash_[i % kRing] = hash;
      rows_.parts_[PartOf(hash)]->index.Prefetch(hash);
    }
  }
  void LoadRow(size_t i) {
    const char* row;
    if constexpr (kStatic) {
      row = rows_.FindRow(ids_[i]);
    } else {
      const uint64_t hash = hash_[i % kRing];
      const Part& part = *rows_.parts_[PartOf(hash)];
      const uint32_t id = Index::Candidate(part.index.HomeOfHash(hash), hash);
      row = id == Index::kNone ? nullptr : part.store.Row(id);
      probable_[i % kRing] = row;
    }
    if (row != nullptr) Base::Prefetch(row, stride_);
  }

  const QuantisedRows& rows_;
  const IdView& ids_;
  const IdFilter& filter_;
  const AgeLimit* const limit_;
  const bool filters_;
  const size_t header_, stride_;
  uint64_t hash_[kStatic ? 1 : kRing];
  const char* probable_[kStatic ? 1 : kRing];
};

template <bool kStatic>
void QuantisedRows::LookupBy(const IdView& ids, const IdFilter& filter, const float* unknown,
                             const AgeLimit* limit, float* out) const {
  const auto pool = PoolKernel();
  const size_t step = ids.stride * static_cast<size_t>(layout_.dim);
  ForBlocks(ids.size, BlockOf(ids.size, ids.size), [&](size_t first, size_t last) {
    Finder<kStatic> finder(*this, ids, filter, limit, first, last);
    for (size_t i = first; i < last; ++i) {
      const char* row = finder.Next();
      pool(&row, nullptr, row == &kDroppedRow ? 0 : 1, unknown, 1.0f, layout_.dim, out + i * step);
    }
  });
}

template <bool kStatic>
void QuantisedRows::PoolBy(const IdView& ids, const IdFilter& filter, const BagView& bags,
                           const float* unknown, const AgeLimit* limit, float* out) const {
  const auto pool = PoolKernel();
  const size_t num_bags = bags.offsets.size;
  const auto end_of = [&](size_t bag) {
    return bag + 1 < num_bags ? static_cast<size_t>(bags.offsets[bag + 1]) : ids.size;
  };
  ForBlocks(num_bags, BlockOf(num_bags, ids.size), [&](size_t first_bag, size_t last_bag) {
    static thread_local std::vector<const char*> kept_rows;  // static, so that calls reuse the
                                                             // memory
    static thread_local std::vector<float> kept_weights;
    std::vector<const char*>& rows = kept_rows;
    std::vector<float>& weights = kept_weights;
    auto i = static_cast<size_t>(bags.offsets[first_bag]);
    Finder<kStatic> finder(*this, ids, filter, limit, i, end_of(last_bag - 1));
    for (size_t bag = first_bag; bag < last_bag; ++bag) {
      const size_t end = end_of(bag);
      rows.resize(std::max(rows.size(), end - i));
      if (bags.weights != nullptr) weights.resize(std::max(weights.size(), end - i));
      size_t n = 0;
      double total = 0.0;
      for (; i < end; ++i) {
        const char* row = finder.Next();
        if (row == &kDroppedRow) continue;
        rows[n] = row;
        const float w = bags.weights != nullptr ? bags.weights[i] : 1.0f;
        if (bags.weights != nullptr) weights[n] = w;
        total += bags.combiner == Combiner::kSqrtN ? static_cast<double>(w) * w : w;
        ++n;
      }
      pool(rows.data(), bags.weights != nullptr ? weights.data() : nullptr, n, unknown,
           BagFactor(bags.combiner, total), layout_.dim,
           out + bag * static_cast<size_t>(layout_.dim));
    }
  });
}

void QuantisedRows::Lookup(const IdView& ids, const IdFilter& filter, const float* unknown,
                           const AgeLimit* limit, float* out) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  if (layout_.keyed) {
    LookupBy<false>(ids, filter, unknown, limit, out);
  } else {
    LookupBy<true>(ids, filter, unknown, limit, out);
  }
}

void QuantisedRows::Pool(const IdView& ids, const IdFilter& filter, const BagView& bags,
                         const float* unknown, const AgeLimit* limit, float* out) const {
  const std::string error = BagError(ids, bags);
  if (!error.empty()) throw std::invalid_argument(error);
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  if (layout_.keyed) {
    PoolBy<false>(ids, filter, bags, unknown, limit, out);
  } else {
    PoolBy<true>(ids, filter, bags, unknown, limit, out);
  }
}

}  // namespace msrec
