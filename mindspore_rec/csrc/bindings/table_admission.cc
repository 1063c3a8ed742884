// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <vector>

#include "bindings/table_arguments.h"

namespace py = pybind11;

namespace msrec {
namespace {

py::dict ExportCounters(const PyTable& self) {
  const std::vector<RowMeta> counters =
      WithoutPython([&] { return self->admission().ExportCounters(); });
  const auto n = static_cast<py::ssize_t>(counters.size());
  Array<int64_t> keys(n);
  Array<uint32_t> counts(n), steps(n), times(n);
  for (py::ssize_t i = 0; i < n; ++i) {
    keys.mutable_data()[i] = counters[i].key;
    counts.mutable_data()[i] = counters[i].count;
    steps.mutable_data()[i] = counters[i].last_step;
    times.mutable_data()[i] = counters[i].last_time;
  }
  py::dict out;
  out["keys"] = keys;
  out["counts"] = counts;
  out["last_steps"] = steps;
  out["last_times"] = times;
  return out;
}

void ImportCounters(const PyTable& self, const Array<int64_t>& keys, const Array<uint32_t>& counts,
                    const Array<uint32_t>& last_steps, const Array<uint32_t>& last_times) {
  const py::ssize_t n = keys.size();
  if (counts.size() != n || last_steps.size() != n || last_times.size() != n) {
    throw py::value_error(
        Where(self, "keys, counts, last_steps and last_times must have the same length"));
  }
  std::vector<RowMeta> counters(n);
  for (py::ssize_t i = 0; i < n; ++i) {
    counters[i].key = keys.data()[i];
    counters[i].count = std::min(counts.data()[i], kMaxCount);
    counters[i].live = 1;
    counters[i].last_step = last_steps.data()[i];
    counters[i].last_time = last_times.data()[i];
  }
  WithoutPython([&] { self->admission().ImportCounters(counters); });
}

py::bytes ExportSketch(const PyTable& self) {
  const std::vector<char> memory = WithoutPython([&] { return self->admission().ExportSketch(); });
  return py::bytes(memory.data(), memory.size());
}

void ImportSketch(const PyTable& self, const py::bytes& memory) {
  const std::string_view view = memory;
  WithoutPython([&] { self->admission().ImportSketch(view.data(), view.size()); });
}

}  // namespace

void BindTableAdmission(TableClass* table) {
  table
      ->def("set_admission_threshold",
            [](const PyTable& self, int64_t threshold) {
              WithoutPython([&] { self->admission().SetThreshold(threshold); });
            })
      .def("export_counters", &ExportCounters)
      .def("import_counters", &ImportCounters, py::arg("keys"), py::arg("counts"),
           py::arg("last_steps"), py::arg("last_times"))
      .def("export_sketch", &ExportSketch)
      .def("import_sketch", &ImportSketch);
}

}  // namespace msrec
