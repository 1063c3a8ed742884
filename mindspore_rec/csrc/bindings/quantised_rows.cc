// SPDX-License-Identifier: Apache-2.0
#include "bindings/quantised_rows.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/calls.h"
#include "readers/quantised_rows.h"

namespace py = pybind11;

namespace msrec {
namespace {

struct PyQuantisedRows {
  PyQuantisedRows(int32_t dim, int32_t bits, int64_t vocabulary,
                  const std::optional<Array<float>>& unknown)
      : rows(dim, bits, vocabulary, false), unknown_row(static_cast<size_t>(dim)) {
    if (!unknown.has_value()) return;
    if (unknown->ndim() != 1 || unknown->size() != dim) {
      throw py::value_error("unknown must be [" + std::to_string(dim) + "] floats");
    }
    unknown_row.assign(unknown->data(), unknown->data() + dim);
  }

  QuantisedRows rows;
  std::vector<float> unknown_row;
};

const float* Floats(const py::array& array, const char* argument, std::vector<py::ssize_t> shape) {
  const bool fits = py::isinstance<py::array_t<float>>(array) &&
                    (array.flags() & py::array::c_style) != 0 &&
                    std::vector<py::ssize_t>(array.shape(), array.shape() + array.ndim()) == shape;
  if (fits) return static_cast<const float*>(array.data());
  std::string text;
  for (const py::ssize_t n : shape) text += (text.empty() ? "" : ", ") + std::to_string(n);
  throw py::value_error(std::string(argument) + " must be C-contiguous float32 [" + text + "]");
}

void UpsertQuantised(PyQuantisedRows* self, const py::array& keys, const py::array& values) {
  const IdView view = IdVector(keys, "keys");
  const float* data =
      Floats(values, "values", {static_cast<py::ssize_t>(view.size), self->rows.layout().dim});
  Natively([&] { self->rows.Upsert(view, data, nullptr, nullptr); });
}

size_t EraseQuantised(PyQuantisedRows* self, const py::array& keys) {
  const IdView view = IdVector(keys, "keys");
  return Natively([&] { return self->rows.Erase(view); });
}

// For a static table, the lookup returns the unknown value for ids outside the vocabulary, too.
Array<float> LookupQuantised(const PyQuantisedRows& self, const py::array& ids) {
  const IdView view = IdVector(ids, "ids");
  Array<float> out(
      {static_cast<py::ssize_t>(view.size), static_cast<py::ssize_t>(self.rows.layout().dim)});
  float* data = out.mutable_data();
  Natively([&] { self.rows.Lookup(view, {}, self.unknown_row.data(), nullptr, data); });
  return out;
}

Array<float> Pool(const PyQuantisedRows& self, const py::array& ids, const py::array& offsets,
                  const std::string& combiner, const std::optional<py::array>& weights) {
  const IdView view = IdVector(ids, "ids");
  BagView bags;
  bags.offsets = IdVector(offsets, "offsets");
  if (combiner != "sum" && combiner != "mean") {
    throw py::value_error("combiner must be 'sum' or 'mean', got '" + combiner + "'");
  }
  if (combiner == "mean") bags.combiner = Combiner::kMean;
  if (weights.has_value()) {
    bags.weights = Floats(*weights, "weights", {static_cast<py::ssize_t>(view.size)});
  }
  Array<float> out({static_cast<py::ssize_t>(bags.offsets.size),
                    static_cast<py::ssize_t>(self.rows.layout().dim)});
  float* data = out.mutable_data();
  Natively([&] { self.rows.Pool(view, {}, bags, self.unknown_row.data(), nullptr, data); });
  return out;
}

py::dict StatsOfQuantised(const PyQuantisedRows& self) {
  const QuantisedRows::Memory memory = self.rows.MemoryHeld();
  py::dict out;
  out["rows"] = memory.rows;
  out["row_bytes"] = memory.slabs;
  out["index_bytes"] = memory.index;
  return out;
}

}  // namespace

void BindQuantisedRows(py::module_* module) {
  py::class_<PyQuantisedRows>(*module, "QuantisedRows")
      .def(py::init<int32_t, int32_t, int64_t, const std::optional<Array<float>>&>(),
           py::arg("dim"), py::arg("bits"), py::arg("vocabulary") = 0,
           py::arg("unknown") = py::none())
      .def("upsert", &UpsertQuantised, py::arg("keys"), py::arg("values"))
      .def("erase", &EraseQuantised, py::arg("keys"))
      .def("clear", [](PyQuantisedRows* self) { Natively([&] { self->rows.Clear(); }); })
      .def("lookup", &LookupQuantised, py::arg("ids"))
      .def("pool", &Pool, py::arg("ids"), py::arg("offsets"), py::arg("combiner") = "sum",
           py::arg("weights") = py::none())
      .def("keys",
           [](const PyQuantisedRows& self) {
             const std::vector<int64_t> keys = Natively([&] { return self.rows.Keys(nullptr); });
             return Array<int64_t>(static_cast<py::ssize_t>(keys.size()), keys.data());
           })
      .def("stats", &StatsOfQuantised);
}

}  // namespace msrec
