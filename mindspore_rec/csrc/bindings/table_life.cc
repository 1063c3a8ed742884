// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/table_arguments.h"
#include "workers/made_tables.h"

namespace py = pybind11;

namespace msrec {
namespace {

PlacementKind ParsePlacement(const std::string& kind) {
  if (kind == "sharded") return PlacementKind::kSharded;
  if (kind == "owner") return PlacementKind::kOwner;
  if (kind == "replicated") return PlacementKind::kReplicated;
  throw py::value_error("placement must be 'sharded', 'owner' or 'replicated', got '" + kind + "'");
}

// Returns the worker that owns the row of each key.
Array<int32_t> Owners(const PyTable& self, const py::array& keys) {
  const IdView view = Ids(self, keys, "keys");
  Array<int32_t> owners(static_cast<py::ssize_t>(view.size));
  for (size_t i = 0; i < view.size; ++i) {
    owners.mutable_data()[i] = static_cast<int32_t>(self->placement().OwnerOf(view[i]));
  }
  return owners;
}

PyTable Make(const std::string& name, int32_t dim, uint64_t seed, const std::string& init_kind,
             float init_a, float init_b, float init_lower, float init_upper, int64_t vocabulary,
             bool outside_zeros, std::vector<float> unknown_value,
             std::vector<float> serving_unknown_value, const std::string& admission_kind,
             int64_t admission_threshold, int64_t max_candidates, int64_t sketch_bytes,
             int sketch_bits, double probability, int64_t max_idle_steps, int64_t max_idle_seconds,
             int64_t max_rows, int64_t max_bytes, const std::string& order, double half_life_steps,
             float min_norm, bool on_trigger, const std::optional<std::string>& placement,
             uint32_t owner, const std::string& value_dtype, const std::string& state_dtype,
             const std::string& accumulator_dtype, const std::string& rounding, bool replace,
             int64_t scope) {
  TableConfig config;
  config.name = name;
  config.scope = scope;
  config.dim = dim;
  config.seed = seed;
  config.initializer = MakeInitializer(init_kind, init_a, init_b, init_lower, init_upper);
  config.vocabulary = vocabulary;
  config.outside_zeros = outside_zeros;
  config.unknown_value = std::move(unknown_value);
  config.serving_unknown_value = std::move(serving_unknown_value);
  config.admission = MakeAdmission(admission_kind, admission_threshold, max_candidates,
                                   sketch_bytes, sketch_bits, probability);
  config.eviction = MakeEviction(max_idle_steps, max_idle_seconds, max_rows, max_bytes, order,
                                 half_life_steps, min_norm, on_trigger);
  config.precision = MakePrecision(value_dtype, state_dtype, accumulator_dtype, rounding);
  if (!placement.has_value()) return {CreateTable(config, replace)};
  config.placement.kind = ParsePlacement(*placement);
  config.placement.owner = owner;
  return {CreateTableOverWorkers(config, replace)};
}

}  // namespace

void BindTableLife(TableClass* table) {
  table
      ->def(py::init(&Make), py::kw_only(), py::arg("name"), py::arg("dim"), py::arg("seed") = 0,
            py::arg("init_kind") = "constant", py::arg("init_a") = 0.0f, py::arg("init_b") = 0.0f,
            py::arg("init_lower") = -2.0f, py::arg("init_upper") = 2.0f, py::arg("vocabulary") = 0,
            py::arg("outside_zeros") = false, py::arg("unknown_value") = std::vector<float>{},
            py::arg("serving_unknown_value") = std::vector<float>{},
            py::arg("admission_kind") = "count", py::arg("admission_threshold") = -1,
            py::arg("max_candidates") = -1, py::arg("sketch_bytes") = 0,
            py::arg("sketch_bits") = 16, py::arg("probability") = 1.0,
            py::arg("max_idle_steps") = -1, py::arg("max_idle_seconds") = -1,
            py::arg("max_rows") = -1, py::arg("max_bytes") = -1, py::arg("order") = "lru",
            py::arg("half_life_steps") = 0.0, py::arg("min_norm") = -1.0f,
            py::arg("on_trigger") = false, py::arg("placement") = std::nullopt,
            py::arg("owner") = 0, py::arg("value_dtype") = "float32",
            py::arg("state_dtype") = "float32", py::arg("accumulator_dtype") = "float32",
            py::arg("rounding") = "stochastic", py::arg("replace") = false, py::arg("scope") = 0)
      .def("check_not_replaced", [](const PyTable& self) { CheckNotReplaced(*self.registered); })
      .def_property_readonly("id", [](const PyTable& self) { return self.registered->id; })
      .def_property_readonly("name", [](const PyTable& self) { return self->config().name; })
      .def_property_readonly("dim", [](const PyTable& self) { return self->dim(); })
      .def_property_readonly(
          "value_dtype", [](const PyTable& self) { return NameOf(self->config().precision.value); })
      .def_property_readonly(
          "state_dtype",
          [](const PyTable& self) {
            return NameOf(WithoutPython([&] { return self->layout(); }).state_type);
          })
      .def_property_readonly("vocabulary",
                             [](const PyTable& self) { return self->config().vocabulary; })
      .def_property_readonly("workers",
                             [](const PyTable& self) { return self->placement().workers; })
      .def(
          "quantise",
          [](const PyTable& self, int32_t bits) {
            WithoutPython([&] { self->quantised().Quantise(bits); });
          },
          py::arg("bits"))
      .def_property_readonly("quantised_bits",
                             [](const PyTable& self) {
                               return WithoutPython([&] { return self->quantised().bits(); });
                             })
      .def("owners", &Owners, py::arg("keys"))
      .def("close",
           [](const PyTable& self) { WithoutPython([&] { CloseTable(self.registered->id); }); });
}

}  // namespace msrec
