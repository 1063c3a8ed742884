// SPDX-License-Identifier: Apache-2.0
#include "bindings/checked_rows.h"

#include <algorithm>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/calls.h"
#include "tier/checked_rows.h"

namespace py = pybind11;

namespace msrec {
namespace {

// Requires a C-contiguous matrix of bytes.
void RequireBytes(const py::array& array, const char* name) {
  if (!py::isinstance<py::array_t<uint8_t>>(array) || array.ndim() != 2 ||
      (array.flags() & py::array::c_style) == 0) {
    throw py::value_error(std::string(name) + " must be a C-contiguous uint8 matrix");
  }
}

void RequireOrder(const Array<int64_t>& keys, const Array<int64_t>& order, const py::array& rows) {
  RequireBytes(rows, "rows");
  if (keys.ndim() != 1 || order.ndim() != 1 || rows.shape(0) != keys.size()) {
    throw py::value_error("keys and order must be vectors, and rows have one row a key");
  }
  const int64_t* of = order.data();
  if (!std::all_of(of, of + order.size(), [&](int64_t i) { return i >= 0 && i < keys.size(); })) {
    throw py::value_error("order must be in [0, " + std::to_string(keys.size()) + ")");
  }
}

void PackChecked(const Array<int64_t>& keys, const py::array& rows, const Array<int64_t>& order,
                 py::array lines, py::ssize_t at) {
  RequireOrder(keys, order, rows);
  RequireBytes(lines, "lines");
  const auto row_bytes = static_cast<size_t>(rows.shape(1));
  const auto width = static_cast<size_t>(lines.shape(1));
  if (lines.shape(0) != order.size() || at < 0 ||
      static_cast<size_t>(at) + row_bytes + kCheckBytes > width) {
    throw py::value_error("lines must have a line for each of order, with room for a row");
  }
  const auto n = static_cast<size_t>(order.size());
  const int64_t* of = keys.data();
  const int64_t* places = order.data();
  const auto* from = static_cast<const char*>(rows.data());
  char* to = static_cast<char*>(lines.mutable_data()) + at;
  WithoutPython([&] { PutCheckedRows(of, from, row_bytes, places, n, width, to); });
}

Array<int64_t> UnpackChecked(const Array<int64_t>& keys, const py::buffer& packed,
                             const Array<int64_t>& order, py::array rows) {
  RequireOrder(keys, order, rows);
  const auto row_bytes = static_cast<size_t>(rows.shape(1));
  const auto n = static_cast<size_t>(order.size());
  const py::buffer_info given = packed.request();
  if (given.itemsize != 1 || given.ndim != 1 ||
      static_cast<size_t>(given.size) != n * (row_bytes + kCheckBytes)) {
    throw py::value_error("packed must have " + std::to_string(row_bytes + kCheckBytes) +
                          " bytes for each of order");
  }
  const int64_t* of = keys.data();
  const int64_t* places = order.data();
  const auto* from = static_cast<const char*>(given.ptr);
  char* to = static_cast<char*>(rows.mutable_data());
  std::vector<int64_t> damaged;
  WithoutPython([&] { damaged = TakeCheckedRows(of, from, row_bytes, places, n, to); });
  return Array<int64_t>(static_cast<py::ssize_t>(damaged.size()), damaged.data());
}

}  // namespace

void BindCheckedRows(py::module_* module) {
  module->attr("CHECK_BYTES") = kCheckBytes;
  module->def("pack_checked_rows", &PackChecked, py::arg("keys"), py::arg("rows"), py::arg("order"),
              py::arg("lines"), py::arg("at"));
  module->def("unpack_checked_rows", &UnpackChecked, py::arg("keys"), py::arg("packed"),
              py::arg("order"), py::arg("rows"));
}

}  // namespace msrec
