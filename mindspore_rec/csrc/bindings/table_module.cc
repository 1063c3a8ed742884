// SPDX-License-Identifier: Apache-2.0
#include "bindings/table_module.h"

#include <string>

#include "bindings/eviction_reason.h"
#include "bindings/python_tier.h"
#include "bindings/table_binding.h"
#include "rows/rule.h"

namespace py = pybind11;

namespace msrec {
namespace {

void BindErrors(py::module_& m) {
  py::register_exception<TableClosed>(m, "TableClosedError", PyExc_RuntimeError);
  py::register_exception<OutOfMemory>(m, "OutOfMemoryError", PyExc_MemoryError);
  SetRowDamagedError(
      py::register_exception<RowDamaged>(m, "RowDamagedError", PyExc_RuntimeError).ptr());
  py::register_exception<StaleHandle>(m, "StaleHandleError", PyExc_ValueError);
  py::register_exception<NameTaken>(m, "NameTakenError", PyExc_ValueError);
  py::register_exception<NoOptimizer>(m, "NoOptimizerError", PyExc_RuntimeError);
}

int32_t WidthOfState(const std::string& rule, int32_t dim, bool centered) {
  Rule made;
  made.kind = ParseRuleKind(rule);
  made.centered = centered;
  return made.StateWidth(dim);
}

}  // namespace

void BindTable(py::module_* module) {
  py::module_& m = *module;
  BindErrors(m);
  m.def("state_width", &WidthOfState, py::arg("rule"), py::arg("dim"), py::arg("centered") = false);
  py::dict reasons;
  for (int i = 1; i <= static_cast<int>(EvictionReason::kNorm); ++i) {
    reasons[py::int_(i)] = ReasonName(static_cast<EvictionReason>(i));
  }
  m.attr("EVICTION_REASONS") = reasons;
  TableClass table(m, "Table");
  BindTableLife(&table);
  BindTableTraining(&table);
  BindTableDevice(&table);
  BindTableRows(&table);
  BindTableWhole(&table);
  BindTableDigest(&table);
  BindTableAdmission(&table);
  BindTableEviction(&table);
  BindTableTiers(&table);
  BindTableStatistics(&table);
}

}  // namespace msrec
