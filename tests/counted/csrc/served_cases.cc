// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <system_error>
#include <vector>

#include "cases.h"
#include "meter.h"
#include "readers/shared_memory.h"
#include "readers/shared_writer.h"
#include "support.h"

namespace msrec {
namespace {

constexpr uint64_t kKeys = 30000;
// A delta changes the keys kBegin to kEnd, of which the last fifth is new, and drops the first
// ones.
constexpr uint64_t kBegin = 25000, kEnd = 31250, kDropped = 1500;

// Columns of a delta's rows.
struct DeltaRows {
  std::vector<int64_t> keys = CountedKeys(kBegin, kEnd);
  std::vector<int64_t> dropped = CountedKeys(0, kDropped);
  std::vector<float> values = CountedFloats((kEnd - kBegin) * kCountedDim, 12);
  std::vector<uint32_t> counts = std::vector<uint32_t>(kEnd - kBegin, 3);
  std::vector<uint32_t> steps = std::vector<uint32_t>(kEnd - kBegin, 7);
  std::vector<uint32_t> times = std::vector<uint32_t>(kEnd - kBegin, 1'700'000'000);
};

}  // namespace

void CountLookupInt8() {
  Table table(CountedConfig("counted.int8"));
  table.quantised().Quantise(8);
  FillTable(&table, kKeys);
  const std::vector<int64_t> ids = CountedIds(80000, kKeys, 10);
  std::vector<float> out(ids.size() * kCountedDim);
  table.LookupEval(View(ids), {}, out.data());
  const Meter meter;
  table.LookupEval(View(ids), {}, out.data());
}

void CountDeltaApply() {
  Table table(CountedConfig("counted.delta"));
  FillTable(&table, kKeys);
  DeltaRows delta;
  RowArrays rows;
  rows.keys = delta.keys.data();
  rows.values = delta.values.data();
  rows.counts = delta.counts.data();
  rows.last_steps = delta.steps.data();
  rows.last_times = delta.times.data();
  const Meter meter;
  // As TableUpdate of common/run/load_tables.py does it.
  table.Erase(View(delta.dropped));
  table.Import(delta.keys.size(), rows, 0);
  table.clock().Set(7, 1'700'000'000);
}

void CountDeltaOfShared() {
  const int fd = memfd_create("counted", MFD_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  SharedMemory::Create(fd, {{kCountedDim, 32, 0, -1, -1, 0, 0, 0, 0}}, 64 << 20);
  {
    SharedWriter writer(std::make_shared<SharedMemory>(fd, SharedMemory::Access::kWrite));
    const std::vector<int64_t> keys = CountedKeys(0, kKeys);
    const std::vector<float> values = CountedFloats(kKeys * kCountedDim, 2);
    writer.Clear(0);
    writer.Upsert(0, View(keys), values.data(), nullptr, nullptr);
    writer.Publish("state 1", "status");
    writer.Settle();
    const DeltaRows delta;
    const Meter meter;
    writer.Erase(0, View(delta.dropped));
    writer.Upsert(0, View(delta.keys), delta.values.data(), delta.steps.data(), delta.times.data());
    writer.SetAgesAt(0, 7, 1'700'000'000);
    writer.Publish("state 2", "status");
    writer.Settle();
  }
  close(fd);
}

}  // namespace msrec
