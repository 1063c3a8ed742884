// SPDX-License-Identifier: Apache-2.0
//
// The methods of Table that read rows and compute the rows' digests.
#include <algorithm>
#include <vector>

#include "readers/quantised_rows.h"
#include "rows/row_digests.h"
#include "table/table.h"
#include "table/table_guard.h"
#include "util/for_blocks.h"

namespace msrec {
namespace {

constexpr size_t kDigestsHeld = size_t{1} << 17;
constexpr size_t kDigestsOfTask = 4096;

}  // namespace

void Table::Digests(const TakeDigests& fn) {
  TableGuard::Run(&core_, [&] {
    engine_.evictor.EvictDue();
    std::vector<int64_t> keys;
    std::vector<uint64_t> digests;
    if (core_.quantised != nullptr) {
      const AgeLimit limit = engine_.quantised.Ages();
      keys = core_.quantised->Keys(&limit);
      digests.resize(std::min(keys.size(), kDigestsHeld));
      for (size_t first = 0; first < keys.size(); first += kDigestsHeld) {
        const size_t n = std::min(kDigestsHeld, keys.size() - first);
        ForBlocks(n, kDigestsOfTask, [&](size_t begin, size_t end) {
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
    engine_.reader.Walk([&](const KeyedRows& rows) {
      for (size_t first = 0; first < rows.size(); first += kDigestsHeld) {
        const size_t n = std::min(kDigestsHeld, rows.size() - first);
        ForBlocks(n, kDigestsOfTask, [&](size_t begin, size_t end) {
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

}  // namespace msrec
