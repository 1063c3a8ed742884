// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "bindings/arguments.h"

namespace py = pybind11;

namespace msrec {
namespace {

void Put(const PyTable& self, const py::array& keys, const py::array& values) {
  const IdView view = Ids(self, keys, "keys");
  const float* data = Floats(self, values, "values", self->dim(), &keys);
  WithoutPython([&] { self->Put(view, data, view.size); });
}

size_t Erase(const PyTable& self, const py::array& keys) {
  const IdView view = Ids(self, keys, "keys");
  return WithoutPython([&] { return self->Erase(view); });
}

Array<bool> Contains(const PyTable& self, const py::array& keys) {
  const IdView view = Ids(self, keys, "keys");
  Array<bool> out(std::vector<py::ssize_t>(keys.shape(), keys.shape() + keys.ndim()));
  bool* data = out.mutable_data();
  WithoutPython([&] { self->Contains(view, data); });
  return out;
}

Array<int64_t> Keys(const PyTable& self) {
  const std::vector<int64_t> keys = WithoutPython([&] { return self->Keys(); });
  return Array<int64_t>(static_cast<py::ssize_t>(keys.size()), keys.data());
}

}  // namespace

void BindTableRows(TableClass* table) {
  table->def("put", &Put)
      .def("erase", &Erase)
      .def("contains", &Contains)
      .def("size", [](const PyTable& self) { return WithoutPython([&] { return self->Size(); }); })
      .def("keys", &Keys);
}

}  // namespace msrec
