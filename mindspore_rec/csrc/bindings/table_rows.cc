// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "bindings/table_arguments.h"

namespace py = pybind11;

namespace msrec {
namespace {

void Put(const PyTable& self, const py::array& keys, const py::array& values) {
  const IdView view = Ids(self, keys, "keys");
  const float* data = Floats(self, values, "values", self->dim(), &keys);
  WithRequests(self, [&](auto& rows) { rows.Put(view, data, view.size); });
}

// Puts the rows that this worker owns.
void PutOwned(const PyTable& self, const py::array& keys, const py::array& values) {
  const IdView view = Ids(self, keys, "keys");
  const float* data = Floats(self, values, "values", self->dim(), &keys);
  WithoutPython([&] {
    const Placement& placement = self->placement();
    if (!placement.spread()) return self->Put(view, data, view.size);
    const size_t dim = self->dim();
    std::vector<int64_t> mine;
    std::vector<float> rows;
    for (size_t i = 0; i < view.size; ++i) {
      if (!placement.Owns(view[i])) continue;
      mine.push_back(view[i]);
      rows.insert(rows.end(), data + i * dim, data + (i + 1) * dim);
    }
    self->Put({mine.data(), mine.size(), true}, rows.data(), mine.size());
  });
}

size_t Erase(const PyTable& self, const py::array& keys) {
  const IdView view = Ids(self, keys, "keys");
  return WithRequests(self, [&](auto& rows) { return rows.Erase(view); });
}

Array<bool> Contains(const PyTable& self, const py::array& keys) {
  const IdView view = Ids(self, keys, "keys");
  Array<bool> out(std::vector<py::ssize_t>(keys.shape(), keys.shape() + keys.ndim()));
  bool* data = out.mutable_data();
  WithRequests(self, [&](auto& rows) { rows.Contains(view, data); });
  return out;
}

size_t Size(const PyTable& self) {
  return WithRequests(self, [&](auto& rows) { return rows.Size(); });
}

Array<int64_t> Keys(const PyTable& self) {
  const std::vector<int64_t> keys = WithRequests(self, [&](auto& rows) { return rows.Keys(); });
  return Array<int64_t>(static_cast<py::ssize_t>(keys.size()), keys.data());
}

}  // namespace

void BindTableRows(TableClass* table) {
  table->def("put", &Put)
      .def("erase", &Erase)
      .def("contains", &Contains)
      .def("put_owned", &PutOwned)
      .def("size", &Size)
      .def("keys", &Keys);
}

}  // namespace msrec
