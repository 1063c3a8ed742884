// SPDX-License-Identifier: Apache-2.0
#include "bindings/digest.h"

#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/calls.h"
#include "readers/kept_digests.h"
#include "rows/row_digest.h"
#include "util/for_blocks.h"

namespace py = pybind11;

namespace msrec {
namespace {

constexpr size_t kBlockRows = 4096;
constexpr uint32_t kMostParts = 1 << 16;

Array<uint64_t> DigestsOfRows(const Array<int64_t>& keys, const py::array& rows) {
  const bool fits = keys.ndim() == 1 && rows.ndim() == 2 && rows.shape(0) == keys.size() &&
                    (rows.flags() & py::array::c_style) != 0;
  if (!fits) {
    throw py::value_error("rows must be a contiguous array [" + std::to_string(keys.size()) +
                          ", numbers]");
  }
  const auto n = static_cast<size_t>(keys.size());
  const auto bytes = static_cast<size_t>(rows.shape(1) * rows.itemsize());
  Array<uint64_t> out(keys.size());
  const int64_t* of = keys.data();
  const auto* from = static_cast<const char*>(rows.data());
  uint64_t* to = out.mutable_data();
  WithoutPython([&] {
    ForBlocks(n, kBlockRows, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) to[i] = RowDigest(of[i], from + i * bytes, bytes);
    });
  });
  return out;
}

Array<uint32_t> PartsOfKeys(const Array<int64_t>& keys, uint32_t parts) {
  CheckParts(parts);
  Array<uint32_t> out(keys.size());
  uint32_t* to = out.mutable_data();
  for (py::ssize_t i = 0; i < keys.size(); ++i) to[i] = DigestPart(keys.data()[i], parts);
  return out;
}

void SetKept(KeptDigests* self, const Array<int64_t>& keys, const Array<uint64_t>& digests) {
  if (keys.ndim() != 1 || digests.ndim() != 1 || keys.size() != digests.size()) {
    throw py::value_error("keys and digests must be arrays [n] of one length");
  }
  const auto n = static_cast<size_t>(keys.size());
  const int64_t* of = keys.data();
  const uint64_t* from = digests.data();
  WithoutPython([&] { self->Set(of, from, n); });
}

void EraseKept(KeptDigests* self, const Array<int64_t>& keys) {
  const auto n = static_cast<size_t>(keys.size());
  const int64_t* of = keys.data();
  WithoutPython([&] { self->Erase(of, n); });
}

py::tuple NextKept(const KeptDigests& self, uint64_t place, size_t least) {
  std::vector<int64_t> keys;
  std::vector<uint32_t> checks;
  if (least == 0) throw py::value_error("least must be 1 or more, got 0");
  const uint64_t next = WithoutPython([&] { return self.Next(place, least, &keys, &checks); });
  const auto n = static_cast<py::ssize_t>(keys.size());
  return py::make_tuple(Array<int64_t>(n, keys.data()), Array<uint32_t>(n, checks.data()), next);
}

Array<uint32_t> ChecksOf(const Array<uint64_t>& digests) {
  Array<uint32_t> out(digests.size());
  uint32_t* to = out.mutable_data();
  for (py::ssize_t i = 0; i < digests.size(); ++i) to[i] = KeptDigests::CheckOf(digests.data()[i]);
  return out;
}

}  // namespace

void CheckParts(uint32_t parts) {
  if (parts < 1 || parts > kMostParts) {
    throw py::value_error("parts must be in [1, " + std::to_string(kMostParts) + "], got " +
                          std::to_string(parts));
  }
}

void BindDigest(py::module_* module) {
  module->def("row_digests", &DigestsOfRows, py::arg("keys"), py::arg("rows"));
  module->def("digest_parts", &PartsOfKeys, py::arg("keys"), py::arg("parts"));
  py::class_<KeptDigests>(*module, "KeptDigests")
      .def(py::init<>())
      .def("set", &SetKept, py::arg("keys"), py::arg("digests"))
      .def("erase", &EraseKept, py::arg("keys"))
      .def("clear", [](KeptDigests* self) { WithoutPython([&] { self->Clear(); }); })
      .def(
          "reserve",
          [](KeptDigests* self, size_t rows) { WithoutPython([&] { self->Reserve(rows); }); },
          py::arg("rows"))
      .def("next", &NextKept, py::arg("place"), py::arg("least"))
      .def_static("checks_of", &ChecksOf, py::arg("digests"))
      .def("__len__", &KeptDigests::Size)
      .def_property_readonly("bytes", &KeptDigests::Bytes);
}

}  // namespace msrec
