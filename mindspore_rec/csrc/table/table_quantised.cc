// SPDX-License-Identifier: Apache-2.0
#include "table/table_quantised.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "readers/quantised_rows.h"
#include "table/table_guard.h"

namespace msrec {

void TableQuantised::Quantise(int32_t bits) {
  TableGuard::Run(&core_, [&] {
    const std::string rows = "rows of int" + std::to_string(bits) + " are for serving: ";
    const auto require = [&](bool fine, const char* what) {
      if (!fine) throw std::invalid_argument(core_.Where(rows + what));
    };
    require(bits == 8 || bits == 4, "they must be of int8 or int4");
    if (core_.quantised != nullptr) {
      require(core_.quantised->layout().bits == bits, "the table has rows of another size already");
      return;
    }
    require(!core_.has_optimizer, "the table must have no optimizer");
    require(core_.cache == nullptr, "the table must have no tiers below host memory");
    require(core_.device == nullptr, "the table must have no device cache");
    require(core_.context.placement.workers == 1, "the table must not be over several workers");
    require(core_.oldest_mark == 0, "nobody may record the table's changes");
    require(core_.context.is_static() || core_.Rows() == 0, "the table must be empty");
    require(core_.config.vocabulary < (int64_t{1} << 32) - 1,
            "the vocabulary must be below 2^32 - 1");
    const bool aged = core_.context.eviction.by_age() && !core_.context.is_static();
    auto made =
        std::make_unique<QuantisedRows>(core_.config.dim, bits, core_.config.vocabulary, aged);
    std::vector<std::unique_ptr<Shard>> empty;
    for (int s = 0; s < kNumShards; ++s) {
      empty.push_back(std::make_unique<Shard>(&core_.context, s));
    }
    engine_.quantised.WriteFirstRows(made.get());
    engine_.ForgetStep();
    core_.shards.swap(empty);
    ++core_.relayouts;
    core_.quantised = std::move(made);
  });
}

void TableQuantised::ImportCodes(const IdView& keys, const uint8_t* rows, size_t width,
                                 const RowArrays& ages) {
  TableGuard::Run(&core_, [&] {
    const QuantisedRows* const quantised = core_.quantised.get();
    const size_t bytes = quantised == nullptr ? 0 : 4 + quantised->layout().code_bytes();
    if (quantised == nullptr || width != bytes) {
      throw std::invalid_argument(
          core_.Where("rows must have " + std::to_string(bytes) + " bytes each, as this table's " +
                      (quantised == nullptr
                           ? "would if it had rows of int8 or int4"
                           : "rows of int" + std::to_string(quantised->layout().bits) + " have") +
                      ", got " + std::to_string(width)));
    }
    core_.CheckKeys(keys, "keys");
    engine_.quantised.PutCodes(keys, rows, width, ages);
  });
}

int32_t TableQuantised::bits() {
  return TableGuard::Run(
      &core_, [&] { return core_.quantised == nullptr ? 0 : core_.quantised->layout().bits; });
}

}  // namespace msrec
