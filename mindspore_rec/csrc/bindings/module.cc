// SPDX-License-Identifier: Apache-2.0
//
// The Python module mindspore_rec._native, for calls on tables outside a graph. The operators of
// ops/ are in the same shared object, so the module and the operators share one registry.
#include <pybind11/pybind11.h>

#include "bindings/checked_rows.h"
#include "bindings/dense.h"
#include "bindings/digest.h"
#include "bindings/eviction_reason.h"
#include "bindings/files.h"
#include "bindings/interpreter.h"
#include "bindings/library.h"
#include "bindings/python_tier.h"
#include "bindings/quantised_rows.h"
#include "bindings/shared_rows.h"
#include "bindings/ssd_store.h"
#include "bindings/table_binding.h"
#include "bindings/workers.h"

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

void BindTable(py::module_& m) {
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

}  // namespace
}  // namespace msrec

PYBIND11_MODULE(_native, m) {
  m.doc() = "Native core of mindspore_rec: tables of embedding rows.";
  msrec::InstallInterpreterLock();
  msrec::BindErrors(m);
  msrec::BindTable(m);
  msrec::BindDigest(&m);
  msrec::BindQuantisedRows(&m);
  msrec::BindSharedRows(&m);
  msrec::BindSsdStore(m);
  msrec::BindCheckedRows(&m);
  msrec::BindFiles(m);
  msrec::BindLibrary(m);
  msrec::BindDense(m);
  msrec::BindWorkers(m);
}
