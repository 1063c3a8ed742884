// SPDX-License-Identifier: Apache-2.0
#include "bindings/shared_rows.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/calls.h"
#include "readers/shared_memory.h"
#include "readers/shared_reader.h"
#include "readers/shared_writer.h"

namespace py = pybind11;

namespace msrec {
namespace {

SharedTableSpec SpecOf(const py::dict& from) {
  SharedTableSpec spec = {};
  spec.dim = from["dim"].cast<int32_t>();
  spec.bits = from["bits"].cast<int32_t>();
  spec.vocabulary = from["vocabulary"].cast<int64_t>();
  spec.max_idle_steps = from["max_idle_steps"].cast<int64_t>();
  spec.max_idle_seconds = from["max_idle_seconds"].cast<int64_t>();
  spec.outside_zeros = from["outside_zeros"].cast<bool>() ? 1 : 0;
  return spec;
}

void Create(int fd, const std::vector<py::dict>& tables, uint64_t most_bytes) {
  std::vector<SharedTableSpec> specs;
  specs.reserve(tables.size());
  for (const py::dict& table : tables) specs.push_back(SpecOf(table));
  SharedMemory::Create(fd, specs, most_bytes);
}

// Python object with a SharedWriter and the writer's shared memory. The arguments of a write are
// checked against the table settings in the shared memory.
struct PySharedWriter {
  PySharedWriter(std::shared_ptr<SharedMemory> of, double patience)
      : memory(std::move(of)), writer(memory, patience) {}
  std::shared_ptr<SharedMemory> memory;
  SharedWriter writer;
};

const uint32_t* Times(const std::optional<Array<uint32_t>>& array, size_t n, const char* argument) {
  if (!array.has_value()) return nullptr;
  if (array->ndim() != 1 || static_cast<size_t>(array->size()) != n) {
    throw py::value_error(std::string(argument) + " must be [" + std::to_string(n) + "]");
  }
  return array->data();
}

void UpsertShared(PySharedWriter* self, size_t table, const py::array& keys,
                  const Array<float>& values, const std::optional<Array<uint32_t>>& last_steps,
                  const std::optional<Array<uint32_t>>& last_times) {
  const IdView view = IdVector(keys, "keys");
  if (table >= self->memory->tables()) throw py::value_error("there is no such table");
  const int32_t dim = self->memory->spec(table).dim;
  if (values.ndim() != 2 || static_cast<size_t>(values.shape(0)) != view.size ||
      values.shape(1) != dim) {
    throw py::value_error("values must be [" + std::to_string(view.size) + ", " +
                          std::to_string(dim) + "]");
  }
  const float* data = values.data();
  const uint32_t* steps = Times(last_steps, view.size, "last_steps");
  const uint32_t* times = Times(last_times, view.size, "last_times");
  Natively([&] { self->writer.Upsert(table, view, data, steps, times); });
}

void UpsertCodes(PySharedWriter* self, size_t table, const py::array& keys,
                 const Array<uint8_t>& codes, const std::optional<Array<uint32_t>>& last_steps,
                 const std::optional<Array<uint32_t>>& last_times) {
  const IdView view = IdVector(keys, "keys");
  if (table >= self->memory->tables()) throw py::value_error("there is no such table");
  if (codes.ndim() != 2 || static_cast<size_t>(codes.shape(0)) != view.size) {
    throw py::value_error("codes must be [" + std::to_string(view.size) + ", bytes]");
  }
  const uint8_t* data = codes.data();
  const auto width = static_cast<size_t>(codes.shape(1));
  const uint32_t* steps = Times(last_steps, view.size, "last_steps");
  const uint32_t* times = Times(last_times, view.size, "last_times");
  Natively([&] { self->writer.UpsertCodes(table, view, data, width, steps, times); });
}

py::array_t<float> LookupShared(const SharedReader& self, int place, size_t table,
                                const py::array& ids, std::optional<int64_t> padding_key,
                                const Array<float>& unknown, const std::string& name) {
  const IdView view = Ids(ids, "table '" + name + "': ids");
  const auto dim = static_cast<int32_t>(unknown.size());
  if (dim != self.Dim(table)) throw py::value_error("unknown must be a row of the table");
  py::array_t<float> out(WithWidth(ids, dim));
  const float* other = unknown.data();
  float* data = out.mutable_data();
  const IdFilter filter = MakeFilter(padding_key);
  Natively([&] { self.Lookup(place, table, view, filter, other, name, data); });
  return out;
}

py::tuple DigestsOf(const SharedReader& self, int place, size_t table, size_t part) {
  std::vector<int64_t> keys;
  std::vector<uint64_t> digests;
  Natively([&] {
    self.Digests(place, table, part, [&](int64_t key, uint64_t digest) {
      keys.push_back(key);
      digests.push_back(digest);
    });
  });
  const auto n = static_cast<py::ssize_t>(keys.size());
  return py::make_tuple(Array<int64_t>(n, keys.data()), Array<uint64_t>(n, digests.data()));
}

}  // namespace

void BindSharedRows(py::module_* module) {
  py::register_exception<SharedDamaged>(*module, "SharedDamagedError", PyExc_RuntimeError);
  py::register_exception<SharedReaderStuck>(*module, "SharedReaderStuckError", PyExc_RuntimeError);
  module->attr("SHARED_READERS") = kSharedReaders;
  module->attr("SHARED_PARTS") = kSharedParts;
  py::class_<SharedMemory, std::shared_ptr<SharedMemory>>(*module, "SharedMemory")
      .def(py::init([](int fd, bool write) {
             return std::make_shared<SharedMemory>(
                 fd, write ? SharedMemory::Access::kWrite : SharedMemory::Access::kRead);
           }),
           py::arg("fd"), py::arg("write") = false)
      .def_static("create", &Create, py::arg("fd"), py::arg("tables"), py::arg("most_bytes"))
      .def_static("is_created", &SharedMemory::IsCreated, py::arg("fd"))
      .def("clear_readers", &SharedMemory::ClearReaders, py::arg("first"), py::arg("count"))
      .def("bytes_held", &SharedMemory::BytesHeld)
      .def(
          "bits",
          [](const SharedMemory& self, size_t table) {
            if (table >= self.tables()) throw py::value_error("there is no such table");
            return self.spec(table).bits;
          },
          py::arg("table"))
      .def_property_readonly("tables", &SharedMemory::tables)
      .def_property_readonly(
          "sequence", [](const SharedMemory& self) { return self.control().sequence.load(); })
      .def_property(
          "following",
          [](const SharedMemory& self) { return self.control().following.load() != 0; },
          [](const SharedMemory& self, bool yes) { self.control().following.store(yes ? 1 : 0); });
  py::class_<PySharedWriter>(*module, "SharedWriter")
      .def(py::init<std::shared_ptr<SharedMemory>, double>(), py::arg("memory"),
           py::arg("patience_seconds") = 10.0, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("published",
                             [](const PySharedWriter& self) { return self.writer.published(); })
      .def("reserve", [](PySharedWriter* self, size_t table,
                         uint64_t rows) { Natively([&] { self->writer.Reserve(table, rows); }); })
      .def("clear",
           [](PySharedWriter* self, size_t table) { Natively([&] { self->writer.Clear(table); }); })
      .def("upsert", &UpsertShared, py::arg("table"), py::arg("keys"), py::arg("values"),
           py::arg("last_steps") = py::none(), py::arg("last_times") = py::none())
      .def("upsert_codes", &UpsertCodes, py::arg("table"), py::arg("keys"), py::arg("codes"),
           py::arg("last_steps") = py::none(), py::arg("last_times") = py::none())
      .def("erase",
           [](PySharedWriter* self, size_t table, const py::array& keys) {
             const IdView view = IdVector(keys, "keys");
             Natively([&] { self->writer.Erase(table, view); });
           })
      .def("erase_old", [](PySharedWriter* self,
                           size_t table) { Natively([&] { self->writer.EraseOld(table); }); })
      .def("set_ages_at", [](PySharedWriter* self, size_t table, int64_t step,
                             int64_t time) { self->writer.SetAgesAt(table, step, time); })
      .def("set_first_time", [](PySharedWriter* self, size_t table,
                                uint32_t time) { self->writer.SetFirstTime(table, time); })
      .def("publish",
           [](PySharedWriter* self, const py::bytes& blob, const py::bytes& status) {
             const std::string of_state = blob, of_status = status;
             Natively([&] { self->writer.Publish(of_state, of_status); });
           })
      .def("publish_status",
           [](PySharedWriter* self, const py::bytes& status) {
             const std::string of_status = status;
             Natively([&] { self->writer.PublishStatus(of_status); });
           })
      .def("abort", [](PySharedWriter* self) { Natively([&] { self->writer.Abort(); }); })
      .def("settle", [](PySharedWriter* self) { Natively([&] { self->writer.Settle(); }); })
      .def("blob", [](const PySharedWriter& self) { return py::bytes(self.writer.Blob()); })
      .def("status", [](const PySharedWriter& self) { return py::bytes(self.writer.Status()); })
      .def("rows", [](const PySharedWriter& self, size_t table) {
        if (table >= self.memory->tables()) throw py::value_error("there is no such table");
        return self.writer.Rows(table);
      });
  py::class_<SharedReader>(*module, "SharedReader")
      .def(py::init<std::shared_ptr<SharedMemory>, int, int>(), py::arg("memory"), py::arg("first"),
           py::arg("count"))
      .def("enter", [](SharedReader* self) { return WithoutPython([&] { return self->Enter(); }); })
      .def("leave", [](SharedReader* self, int place) { self->Leave(place); })
      .def("state", [](const SharedReader& self, int place) { return self.State(place); })
      .def("sequence", [](const SharedReader& self, int place) { return self.Sequence(place); })
      .def("blob", [](const SharedReader& self, int place) { return py::bytes(self.Blob(place)); })
      .def("status",
           [](const SharedReader& self, int place) { return py::bytes(self.Status(place)); })
      .def("rows", [](const SharedReader& self, int place,
                      size_t table) { return self.Rows(place, table); })
      .def("row_digests", &DigestsOf, py::arg("place"), py::arg("table"), py::arg("part"))
      .def("lookup", &LookupShared, py::arg("place"), py::arg("table"), py::arg("ids"),
           py::arg("padding_key"), py::arg("unknown"), py::arg("name"));
}

}  // namespace msrec
