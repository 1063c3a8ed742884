// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "bindings/eviction_reason.h"
#include "bindings/table_arguments.h"

namespace py = pybind11;

namespace msrec {
namespace {

py::int_ ToPython(int64_t n) { return n; }
py::float_ ToPython(double ratio) { return ratio; }
py::int_ ToPython(Bytes bytes) { return bytes.count; }
py::float_ ToPython(Seconds seconds) { return seconds.count(); }

py::dict Stats(const PyTable& self) {
  const TableStats stats = WithoutPython([&] { return self->Stats(); });
  py::dict out;
  ForEachStatistic(
      stats, [&](const std::string& name, auto value) { out[py::str(name)] = ToPython(value); });
  return out;
}

py::dict Explain(const PyTable& self, int64_t key) {
  const Explanation e = WithRequests(self, [&](auto& rows) { return rows.Explain(key); });
  py::dict out;
  out["present"] = e.present;
  out["tier"] = e.tier;
  out["trainable"] = e.trained;
  out["count"] = e.count;
  out["last_step"] = e.last_step;
  out["last_time"] = e.last_time;
  out["norm"] = e.norm;
  out["score"] = e.score;
  out["step"] = e.step;
  out["event_time"] = e.time;
  out["threshold"] = e.admission.threshold;
  out["evicted_reason"] = ReasonName(e.evicted.reason);
  out["evicted_step"] = e.evicted.step;
  out["evicted_time"] = e.evicted.time;
  return out;
}

// For each kind of operator, returns the number of calls and the total time in nanoseconds.
py::dict TimesOfOps(const PyTable& self) {
  const char* names[] = {"lookup", "accumulate", "step", "map"};
  py::dict out;
  for (int i = 0; i < static_cast<int>(OpKind::kCount); ++i) {
    out[names[i]] = py::make_tuple(self.registered->times.calls[i].load(),
                                   self.registered->times.nanoseconds[i].load());
  }
  return out;
}

}  // namespace

void BindTableStatistics(TableClass* table) {
  table->def("stats", &Stats).def("explain", &Explain).def("op_times", &TimesOfOps);
}

}  // namespace msrec
