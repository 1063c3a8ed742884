// SPDX-License-Identifier: Apache-2.0
#include "bindings/kept_events.h"

#include <algorithm>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/calls.h"
#include "rows/kept_events.h"

namespace py = pybind11;

namespace msrec {
namespace {

void CheckUsers(const Array<int64_t>& users, py::ssize_t num_rows) {
  for (py::ssize_t i = 0; i < users.size(); ++i) {
    const int64_t user = users.data()[i];
    if (user < -1 || user >= num_rows) {
      throw py::value_error("users must be in [-1, " + std::to_string(num_rows) + "), got " +
                            std::to_string(user));
    }
  }
}

Array<int64_t> ArrayOf(const std::vector<int64_t>& numbers, std::vector<py::ssize_t> shape) {
  Array<int64_t> made(std::move(shape));
  std::copy(numbers.begin(), numbers.end(), made.mutable_data());
  return made;
}

py::tuple KeepEventsOf(Array<float> rows, const Array<int64_t>& users, const Array<int64_t>& times,
                       const Array<bool>& are_events, const Array<int64_t>& values, size_t length,
                       int64_t idle_seconds, int64_t clock) {
  const py::ssize_t size = users.size();
  if (users.ndim() != 1 || times.ndim() != 1 || are_events.ndim() != 1 || times.size() != size ||
      are_events.size() != size || values.ndim() != 2 || values.shape(0) != size) {
    throw py::value_error("users, times, are_events and values must have the same length");
  }
  const auto width = static_cast<size_t>(values.shape(1));
  const KeptLayout layout{length, width};
  if (rows.ndim() != 2 || static_cast<size_t>(rows.shape(1)) != layout.dim()) {
    throw py::value_error("rows must be an array [N, " + std::to_string(layout.dim()) + "]");
  }
  CheckUsers(users, rows.shape(0));
  const UserRows batch{static_cast<size_t>(size), users.data(), times.data(),
                       reinterpret_cast<const uint8_t*>(are_events.data()), values.data()};
  float* data = rows.mutable_data();
  const auto num_rows = static_cast<size_t>(rows.shape(0));
  EventLists lists;
  Natively([&] { lists = KeepEvents(layout, data, num_rows, batch, idle_seconds, &clock); });
  const auto events = static_cast<py::ssize_t>(lists.times.size());
  return py::make_tuple(ArrayOf(lists.offsets, {size + 1}), ArrayOf(lists.times, {events}),
                        ArrayOf(lists.values, {events, values.shape(1)}), clock);
}

}  // namespace

void BindKeptEvents(py::module_* module) {
  module->def("keep_events", &KeepEventsOf, py::arg("rows").noconvert(), py::arg("users"),
              py::arg("times"), py::arg("are_events"), py::arg("values"), py::arg("length"),
              py::arg("idle_seconds"), py::arg("clock"));
}

}  // namespace msrec
