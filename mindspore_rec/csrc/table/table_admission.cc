// SPDX-License-Identifier: Apache-2.0
#include "table/table_admission.h"

#include <stdexcept>
#include <string>

#include "policy/check.h"
#include "table/table_guard.h"

namespace msrec {

void TableAdmission::SetThreshold(int64_t threshold) {
  TableGuard::Run(&core_, [&] {
    Admission admission = core_.context.admission;
    if (!admission.counts()) {
      throw std::invalid_argument(core_.Where("admits by probability and has no threshold to set"));
    }
    admission.threshold = threshold;
    CheckAdmission(admission, core_.Where(""));
    core_.context.admission = admission;
  });
}

std::vector<RowMeta> TableAdmission::ExportCounters() {
  return TableGuard::Run(&core_, [&] {
    std::vector<RowMeta> counters;
    for (const auto& shard : core_.shards) shard->candidates().Export(&counters);
    return counters;
  });
}

std::vector<char> TableAdmission::ExportSketch() {
  return TableGuard::Run(&core_, [&] {
    std::vector<char> memory;
    for (const auto& shard : core_.shards) {
      CountingSketch& sketch = shard->candidates().sketch();
      memory.resize(memory.size() + sketch.bytes());
      sketch.Save(core_.context.epochs.number, memory.data() + memory.size() - sketch.bytes());
    }
    return memory;
  });
}

void TableAdmission::ImportCounters(const std::vector<RowMeta>& counters) {
  TableGuard::Run(&core_, [&] {
    if (core_.context.admission.kind != AdmissionKind::kCount || core_.context.is_static()) {
      throw std::invalid_argument(core_.Where("keeps no exact counters of keys without a row"));
    }
    if (core_.quantised != nullptr) return;  // nothing counts any more
    std::vector<int64_t> keys;
    for (const RowMeta& counter : counters) keys.push_back(counter.key);
    std::vector<char> copies;
    const KeyedRows rows = engine_.reader.Find(IdView{keys.data(), keys.size(), true}, &copies);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (rows[i].second != nullptr) continue;
      core_.ShardFor(keys[i]).candidates().Import(IndexHash(keys[i]), counters[i]);
    }
  });
}

void TableAdmission::ImportSketch(const char* data, size_t bytes) {
  TableGuard::Run(&core_, [&] {
    size_t total = 0;
    for (const auto& shard : core_.shards) total += shard->candidates().sketch().bytes();
    if (bytes != total) {
      throw std::invalid_argument(core_.Where("has a sketch of " + std::to_string(total) +
                                              " bytes, got one of " + std::to_string(bytes)));
    }
    for (const auto& shard : core_.shards) {
      CountingSketch& sketch = shard->candidates().sketch();
      sketch.Load(core_.context.epochs.number, data);
      data += sketch.bytes();
    }
  });
}

}  // namespace msrec
