// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "bindings/table_arguments.h"

namespace py = pybind11;

namespace msrec {
namespace {

void SetEviction(const PyTable& self, int64_t max_idle_steps, int64_t max_idle_seconds,
                 int64_t max_rows, int64_t max_bytes, const std::string& order,
                 double half_life_steps, float min_norm, bool on_trigger) {
  const Eviction eviction = MakeEviction(max_idle_steps, max_idle_seconds, max_rows, max_bytes,
                                         order, half_life_steps, min_norm, on_trigger);
  WithoutPython([&] { self->eviction().Set(eviction); });
}

size_t SetScores(const PyTable& self, const py::array& keys, const py::array& scores) {
  const IdView view = Ids(self, keys, "keys");
  const float* data = Floats(self, scores, "scores", 1, &keys);
  return WithoutPython([&] { return self->eviction().SetScores(view, data); });
}

// Returns the evicted keys as arrays; `reasons` contains each key's EvictionReason as a number.
py::dict TakeEvicted(const PyTable& self) {
  const std::vector<EvictedKey> evicted = WithoutPython([&] { return self->eviction().Take(); });
  const auto n = static_cast<py::ssize_t>(evicted.size());
  Array<int64_t> keys(n), steps(n);
  Array<uint32_t> times(n);
  Array<uint8_t> reasons(n);
  for (py::ssize_t i = 0; i < n; ++i) {
    keys.mutable_data()[i] = evicted[i].key;
    steps.mutable_data()[i] = evicted[i].step;
    times.mutable_data()[i] = evicted[i].time;
    reasons.mutable_data()[i] = static_cast<uint8_t>(evicted[i].reason);
  }
  py::dict out;
  out["keys"] = keys;
  out["steps"] = steps;
  out["times"] = times;
  out["reasons"] = reasons;
  return out;
}

// Binds the clock that measures the ages of rows.
void BindClock(TableClass* table) {
  table
      ->def("set_event_time",
            [](const PyTable& self, int64_t seconds) {
              WithoutPython([&] { self->clock().SetEventTime(seconds); });
            })
      .def("set_clock",
           [](const PyTable& self, int64_t step, uint32_t time) {
             WithoutPython([&] { self->clock().Set(step, time); });
           })
      .def("set_horizon",
           [](const PyTable& self, int64_t step, int64_t time) {
             WithoutPython([&] { self->clock().SetHorizon({step, time}); });
           })
      .def_property_readonly("horizon",
                             [](const PyTable& self) {
                               const Horizon horizon =
                                   WithoutPython([&] { return self->clock().horizon(); });
                               return py::make_tuple(horizon.step, horizon.time);
                             })
      .def_property_readonly(
          "event_time",
          [](const PyTable& self) { return WithoutPython([&] { return self->clock().time(); }); })
      .def_property_readonly("first_time",
                             [](const PyTable& self) {
                               return WithoutPython([&] { return self->clock().first_time(); });
                             })
      .def_property_readonly("step", [](const PyTable& self) {
        return WithoutPython([&] { return self->clock().step(); });
      });
}

}  // namespace

void BindTableEviction(TableClass* table) {
  BindClock(table);
  table
      ->def("set_eviction", &SetEviction, py::kw_only(), py::arg("max_idle_steps") = -1,
            py::arg("max_idle_seconds") = -1, py::arg("max_rows") = -1, py::arg("max_bytes") = -1,
            py::arg("order") = "lru", py::arg("half_life_steps") = 0.0, py::arg("min_norm") = -1.0f,
            py::arg("on_trigger") = false)
      .def(
          "evict",
          [](const PyTable& self, bool at_once) {
            WithoutPython([&] { self->eviction().Evict(at_once); });
          },
          py::arg("at_once") = true)
      .def("evict_due",
           [](const PyTable& self) { WithoutPython([&] { self->eviction().EvictAll(); }); })
      .def("set_scores", &SetScores)
      .def("collect_evicted", [](const PyTable& self,
                                 bool on) { WithoutPython([&] { self->eviction().Collect(on); }); })
      .def("take_evicted", &TakeEvicted);
}

}  // namespace msrec
