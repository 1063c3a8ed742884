// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/table_arguments.h"

namespace py = pybind11;

namespace msrec {
namespace {

// Turns a C++ array into a NumPy array without a copy.
template <typename T>
py::array Own(std::unique_ptr<T[]> data, std::vector<py::ssize_t> shape) {
  T* raw = data.release();
  py::capsule owner(raw, [](void* p) { delete[] static_cast<T*>(p); });
  return py::array_t<T>(std::move(shape), raw, owner);
}

py::dict ToDict(ExportedRows rows, bool with_state) {
  const auto n = static_cast<py::ssize_t>(rows.n);
  py::dict out;
  out["keys"] = Own(std::move(rows.keys), {n});
  out["values"] = Own(std::move(rows.values), {n, rows.dim});
  if (with_state) out["states"] = Own(std::move(rows.states), {n, rows.state_width});
  out["counts"] = Own(std::move(rows.counts), {n});
  out["last_steps"] = Own(std::move(rows.last_steps), {n});
  out["last_times"] = Own(std::move(rows.last_times), {n});
  out["present"] = Own(std::move(rows.present), {n});
  return out;
}

py::dict Export(const PyTable& self, bool with_state) {
  return ToDict(WithoutPython([&] { return self->Export(with_state); }), with_state);
}

// Returns the rows of all workers.
py::dict ExportAll(const PyTable& self, bool with_state) {
  return ToDict(WithRequests(self, [&](auto& rows) { return rows.Export(with_state); }),
                with_state);
}

py::dict ExportKeysOfAll(const PyTable& self, const py::array& keys, bool with_state) {
  const IdView view = Ids(self, keys, "keys");
  return ToDict(WithRequests(self, [&](auto& rows) { return rows.ExportKeys(view, with_state); }),
                with_state);
}

// Sends each row to the worker that owns the row's key. The owner stores the row with fresh
// optimizer state.
void ImportAll(const PyTable& self, const py::array& keys, const py::array& values) {
  const IdView view = Ids(self, keys, "keys");
  const float* data = Floats(self, values, "values", self->dim(), &keys);
  if (!view.is_int64) throw py::type_error(Where(self, "keys must be int64"));
  WithRequests(self, [&](auto& rows) { rows.Import(view, data); });
}

void ExportParts(const PyTable& self, const py::function& take, bool with_state) {
  std::exception_ptr raised;
  struct Stop {};
  try {
    WithoutPython([&] {
      self->ExportParts(with_state, [&](ExportedRows rows) {
        py::gil_scoped_acquire acquire;
        try {
          take(ToDict(std::move(rows), with_state));
        } catch (...) {
          raised = std::current_exception();
          throw Stop();
        }
      });
    });
  } catch (const Stop&) {
    std::rethrow_exception(raised);
  }
}

py::dict ExportKeys(const PyTable& self, const py::array& keys, bool with_state) {
  const IdView view = Ids(self, keys, "keys");
  return ToDict(WithoutPython([&] { return self->ExportKeys(view, with_state); }), with_state);
}

py::dict ExportSince(const PyTable& self, uint64_t mark, bool with_state, bool sweep) {
  return ToDict(WithoutPython([&] { return self->changes().ExportSince(mark, with_state, sweep); }),
                with_state);
}

// Returns an optional column of `n` integers; null if the argument is None.
uint32_t* Column(const PyTable& self, const py::object& object, const char* argument, size_t n) {
  if (object.is_none()) return nullptr;
  const auto array = object.cast<py::array>();
  if (!py::isinstance<Array<uint32_t>>(array)) {
    throw py::type_error(Where(self, std::string(argument) + " must be a contiguous uint32 array"));
  }
  if (static_cast<size_t>(array.size()) != n) {
    throw py::value_error(Where(self, std::string(argument) + " must have one entry a key, got " +
                                          std::to_string(array.size()) + " for " +
                                          std::to_string(n)));
  }
  return const_cast<uint32_t*>(static_cast<const uint32_t*>(array.data()));
}

void Import(const PyTable& self, const py::array& keys, const py::object& values,
            const py::object& states, const py::object& counts, const py::object& last_steps,
            const py::object& last_times) {
  if (!py::isinstance<py::array_t<int64_t>>(keys))
    throw py::type_error(
        Where(self, "keys must be int64, got " + std::string(py::str(keys.dtype()))));
  const size_t n = Ids(self, keys, "keys").size;
  RowArrays rows;
  rows.keys = const_cast<int64_t*>(static_cast<const int64_t*>(keys.data()));
  int32_t width = 0;
  if (!values.is_none()) {
    rows.values =
        const_cast<float*>(Floats(self, values.cast<py::array>(), "values", self->dim(), &keys));
  }
  if (!states.is_none()) {
    const auto array = states.cast<py::array>();
    if (array.ndim() != 2)
      throw py::value_error(Where(self, "states must have shape [keys, state_width]"));
    width = static_cast<int32_t>(array.shape(1));
    rows.states = const_cast<float*>(Floats(self, array, "states", width, &keys));
  }
  rows.counts = Column(self, counts, "counts", n);
  rows.last_steps = Column(self, last_steps, "last_steps", n);
  rows.last_times = Column(self, last_times, "last_times", n);
  WithoutPython([&] { self->Import(n, rows, width); });
  self.registered->rows_missing.store(false);  // the rows are imported now
}

// Imports rows of int8 or int4 without conversion. `rows` is a uint8 array [n, bytes of a row]; a
// row consists of its scale, offset and codes.
void ImportCodes(const PyTable& self, const py::array& keys, const py::array& rows,
                 const py::object& last_steps, const py::object& last_times) {
  const IdView view = Ids(self, keys, "keys");
  if (!py::isinstance<Array<uint8_t>>(rows) || rows.ndim() != 2) {
    throw py::type_error(Where(self, "rows must be a contiguous uint8 array [n, bytes]"));
  }
  if (static_cast<size_t>(rows.shape(0)) != view.size) {
    throw py::value_error(Where(self, "rows must have one entry a key, got " +
                                          std::to_string(rows.shape(0)) + " for " +
                                          std::to_string(view.size)));
  }
  RowArrays ages;
  ages.last_steps = Column(self, last_steps, "last_steps", view.size);
  ages.last_times = Column(self, last_times, "last_times", view.size);
  const auto* const data = static_cast<const uint8_t*>(rows.data());
  const auto width = static_cast<size_t>(rows.shape(1));
  WithoutPython([&] { self->quantised().ImportCodes(view, data, width, ages); });
}

}  // namespace

void BindTableWhole(TableClass* table) {
  table->def("export_rows", &Export, py::arg("with_state") = false)
      .def("export_parts", &ExportParts, py::arg("take"), py::arg("with_state") = false)
      .def("export_keys", &ExportKeys, py::arg("keys"), py::arg("with_state") = false)
      .def("export_all", &ExportAll, py::arg("with_state") = false)
      .def("export_keys_of_all", &ExportKeysOfAll, py::arg("keys"), py::arg("with_state") = false)
      .def("import_all", &ImportAll, py::arg("keys"), py::arg("values"))
      .def(
          "mark",
          [](const PyTable& self) { return WithoutPython([&] { return self->changes().Mark(); }); })
      .def("export_since", &ExportSince, py::arg("mark"), py::arg("with_state") = false,
           py::arg("sweep") = true)
      .def("release_before",
           [](const PyTable& self, uint64_t mark) {
             WithoutPython([&] { self->changes().ReleaseBefore(mark); });
           })
      .def("import_rows", &Import, py::arg("keys"), py::arg("values") = py::none(),
           py::arg("states") = py::none(), py::arg("counts") = py::none(),
           py::arg("last_steps") = py::none(), py::arg("last_times") = py::none())
      .def("import_codes", &ImportCodes, py::arg("keys"), py::arg("rows"),
           py::arg("last_steps") = py::none(), py::arg("last_times") = py::none())
      .def("clear", [](const PyTable& self) { WithoutPython([&] { self->Clear(); }); })
      // True if the network's weights were loaded without the rows that belong to the weights. If
      // `rows_missing` is true, operators must not read the rows.
      .def_property(
          "rows_missing", [](const PyTable& self) { return self.registered->rows_missing.load(); },
          [](const PyTable& self, bool missing) { self.registered->rows_missing.store(missing); });
}

}  // namespace msrec
