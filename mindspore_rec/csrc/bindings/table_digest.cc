// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "bindings/arrays.h"
#include "bindings/digest.h"
#include "bindings/table_binding.h"
#include "rows/row_digest.h"

namespace py = pybind11;

namespace msrec {
namespace {

// Return the number of rows and the digest of each part of a table.
py::tuple DigestOfTable(const PyTable& self, uint32_t parts) {
  CheckParts(parts);
  std::vector<int64_t> rows(parts);
  std::vector<uint64_t> sums(parts);
  WithoutPython([&] {
    self->Digests([&](const int64_t* keys, const uint64_t* digests, size_t n) {
      for (size_t i = 0; i < n; ++i) {
        const uint32_t part = parts == 1 ? 0 : DigestPart(keys[i], parts);
        ++rows[part];
        sums[part] += digests[i];
      }
    });
  });
  const auto n = static_cast<py::ssize_t>(parts);
  return py::make_tuple(Array<int64_t>(n, rows.data()), Array<uint64_t>(n, sums.data()));
}

// Return the keys of a part of a table, and the digests of their rows.
py::tuple DigestsOfTable(const PyTable& self, uint32_t part, uint32_t parts) {
  CheckParts(parts);
  if (part >= parts) throw py::value_error("part must be below parts");
  std::vector<int64_t> found;
  std::vector<uint64_t> of;
  WithoutPython([&] {
    self->Digests([&](const int64_t* keys, const uint64_t* digests, size_t n) {
      for (size_t i = 0; i < n; ++i) {
        if (DigestPart(keys[i], parts) != part) continue;
        found.push_back(keys[i]);
        of.push_back(digests[i]);
      }
    });
  });
  const auto n = static_cast<py::ssize_t>(found.size());
  return py::make_tuple(Array<int64_t>(n, found.data()), Array<uint64_t>(n, of.data()));
}

Array<int64_t> DamagedRowsOf(const PyTable& self, uint32_t part, uint32_t parts) {
  CheckParts(parts);
  if (part >= parts) throw py::value_error("part must be below parts");
  const auto keys = WithoutPython([&] { return self->changes().DamagedRows(part, parts); });
  return Array<int64_t>(static_cast<py::ssize_t>(keys.size()), keys.data());
}

}  // namespace

void BindTableDigest(TableClass* table) {
  table->def("digest", &DigestOfTable, py::arg("parts") = 1)
      .def("row_digests", &DigestsOfTable, py::arg("part") = 0, py::arg("parts") = 1)
      .def("keep_digest",
           [](const PyTable& self) { WithoutPython([&] { self->changes().KeepDigest(); }); })
      .def("kept_digest",
           [](const PyTable& self) {
             return WithoutPython([&] { return self->changes().KeptDigest(); });
           })
      .def("damaged_rows", &DamagedRowsOf, py::arg("part") = 0, py::arg("parts") = 1);
}

}  // namespace msrec
