// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/python_entry.h"
#include "bindings/python_tier.h"
#include "bindings/table_arguments.h"
#include "workers/made_tables.h"

namespace py = pybind11;

namespace msrec {
namespace {

// A Python callable that any thread may copy or destroy without the GIL.
std::shared_ptr<py::object> Shared(py::object callable) {
  return std::shared_ptr<py::object>(new py::object(std::move(callable)), [](py::object* object) {
    if (!Py_IsInitialized()) return;
    try {
      const PythonEntry python;
      delete object;
    } catch (const PythonEnds&) {
      // The object is never destroyed.
    }
  });
}

// Each level is a dict with the entries "kind", "open" and, if the tier has a limit, "max_rows".
// The entry "open" is a callable that takes row_bytes and generation and returns a tier.
CacheSettings MakeCacheSettings(int64_t host_rows, int64_t host_bytes, const std::string& policy,
                                const py::list& levels) {
  CacheSettings settings;
  settings.host_rows = host_rows;
  settings.host_bytes = host_bytes;
  if (policy != "lru" && policy != "lfu") {
    throw py::value_error("policy '" + policy + "' is unknown; legal: lru, lfu");
  }
  settings.by_count = policy == "lfu";
  for (const py::handle each : levels) {
    const auto level = py::reinterpret_borrow<py::dict>(each);
    LevelConfig config;
    config.kind = level["kind"].cast<std::string>();
    if (level.contains("max_rows")) config.max_rows = level["max_rows"].cast<int64_t>();
    const auto open = Shared(py::reinterpret_borrow<py::object>(level["open"]));
    config.open = [open](size_t row_bytes, int generation) {
      const PythonEntry python;
      try {
        return TierOf((*open)(row_bytes, generation));
      } catch (py::error_already_set& error) {
        throw std::runtime_error(std::string(py::str(error.value())));
      }
    };
    settings.levels.push_back(std::move(config));
  }
  return settings;
}

void SetCache(const PyTable& self, int64_t host_rows, int64_t host_bytes, const std::string& policy,
              const py::list& levels) {
  CacheSettings settings = MakeCacheSettings(host_rows, host_bytes, policy, levels);
  WithoutPython([&] { self->tiers().SetCache(std::move(settings)); });
}

int64_t Prefetch(const PyTable& self, const py::array& ids) {
  const IdView view = Ids(self, ids, "ids");
  return WithoutPython([&] {
    ShardedTable* const all = self.registered->over_workers.get();
    return all == nullptr ? self->tiers().Prefetch(view) : all->Prefetch(TheExchangeAhead(), view);
  });
}

}  // namespace

void BindTableTiers(TableClass* table) {
  table
      ->def("set_cache", &SetCache, py::kw_only(), py::arg("host_rows") = -1,
            py::arg("host_bytes") = -1, py::arg("policy") = "lru", py::arg("levels"))
      .def_property_readonly("has_cache",
                             [](const PyTable& self) { return self->tiers().has_cache(); })
      .def("prefetch", &Prefetch)
      .def("prefetch_wait",
           [](const PyTable& self, int64_t number) {
             return WithoutPython([&] { return self->tiers().PrefetchWait(number); });
           })
      .def("prefetch_done",
           [](const PyTable& self, int64_t number) {
             WithoutPython([&] { self->tiers().PrefetchDone(number); });
           })
      .def(
          "scrub_tiers",
          [](const PyTable& self, int64_t rows) {
            if (rows < 1) {
              throw py::value_error(
                  Where(self, "rows must be 1 or more, got " + std::to_string(rows)));
            }
            return WithoutPython([&] { return self->tiers().Scrub(static_cast<size_t>(rows)); });
          },
          py::arg("rows"))
      .def("flush", [](const PyTable& self) { WithoutPython([&] { self->tiers().Flush(); }); })
      .def("recent_lookups", [](const PyTable& self) {
        return WithoutPython([&] { return self->RecentLookups(); });
      });
}

}  // namespace msrec
