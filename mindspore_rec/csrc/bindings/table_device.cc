// SPDX-License-Identifier: Apache-2.0
//
// Binds the device cache of a table. The caller owns the arrays and must keep them alive while the
// table is open.
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <vector>

#include "bindings/table_arguments.h"

namespace py = pybind11;

namespace msrec {
namespace {

// Returns the memory of a matrix [rows, width] that the table will write to.
float* SharedMatrix(const PyTable& self, const py::object& object, const char* argument,
                    int64_t rows, int32_t width) {
  if (object.is_none()) return nullptr;
  const auto array = object.cast<py::array>();
  if (!py::isinstance<Array<float>>(array) || !array.writeable() || array.ndim() != 2 ||
      array.shape(0) != rows || array.shape(1) != width) {
    throw py::value_error(Where(self, std::string(argument) + " must be writable float32 [" +
                                          std::to_string(rows) + ", " + std::to_string(width) +
                                          "]"));
  }
  return static_cast<float*>(const_cast<void*>(array.data()));
}

// Returns the rows to move between the cache and the host, as the tuple (out_slots, in_slots,
// in_values, in_states).
py::tuple ToTuple(const PyTable& self, const RowMoves& moves) {
  const auto in = static_cast<py::ssize_t>(moves.in_slots.size());
  const py::ssize_t width = in == 0 ? 0 : static_cast<py::ssize_t>(moves.in_states.size()) / in;
  return py::make_tuple(
      Array<int32_t>(static_cast<py::ssize_t>(moves.out_slots.size()), moves.out_slots.data()),
      Array<int32_t>(in, moves.in_slots.data()),
      Array<float>(std::vector<py::ssize_t>{in, self->dim()}, moves.in_values.data()),
      Array<float>(std::vector<py::ssize_t>{in, width}, moves.in_states.data()));
}

void Attach(const PyTable& self, int64_t rows, const std::string& policy,
            const py::object& values) {
  if (policy != "lru" && policy != "lfu") {
    throw py::value_error(Where(self, "policy must be 'lru' or 'lfu', got " + policy));
  }
  DeviceConfig config;
  config.rows = rows;
  config.lfu = policy == "lfu";
  config.shared = !values.is_none();
  float* data = SharedMatrix(self, values, "values", rows + 3, self->dim());
  WithoutPython([&] { self->device().Attach(config, data); });
}

void SetStates(const PyTable& self, int64_t rows, const py::object& states) {
  float* data = SharedMatrix(self, states, "states", rows + 3, self->device().state_width());
  WithoutPython([&] { self->device().SetStates(data); });
}

py::tuple Prepare(const PyTable& self, const py::array& ids, std::optional<int64_t> padding_key,
                  uint32_t coefficient) {
  const IdView view = Ids(self, ids, "ids");
  const IdFilter filter = MakeFilter(padding_key, coefficient);
  return ToTuple(self, WithoutPython([&] { return self->device().Prepare(view, filter); }));
}

void FinishMove(const PyTable& self, const Array<float>& values, const Array<float>& states) {
  const float* value = values.data();
  const float* state = states.data();
  const auto value_count = static_cast<size_t>(values.size());
  const auto state_count = static_cast<size_t>(states.size());
  WithoutPython([&] { self->device().FinishMove(value, value_count, state, state_count); });
}

}  // namespace

void BindTableDevice(TableClass* table) {
  table->def("attach_device", &Attach, py::arg("rows"), py::arg("policy"), py::arg("values"))
      .def("set_device_states", &SetStates)
      .def_property_readonly("device_state_width",
                             [](const PyTable& self) { return self->device().state_width(); })
      .def("prepare_device", &Prepare, py::arg("ids"), py::arg("padding_key") = std::nullopt,
           py::arg("coefficient") = 1)
      .def("fetch_dirty",
           [](const PyTable& self) {
             return ToTuple(self, WithoutPython([&] { return self->device().FetchDirty(); }));
           })
      .def("finish_move", &FinishMove);
}

}  // namespace msrec
