// SPDX-License-Identifier: Apache-2.0
//
// The Python module mindspore_rec._native, for calls on tables outside a graph. The operators of
// ops/ are in the same shared object, so the module and the operators share one registry.
#include <pybind11/pybind11.h>

#include "bindings/checked_rows.h"
#include "bindings/dense.h"
#include "bindings/digest.h"
#include "bindings/files.h"
#include "bindings/interpreter.h"
#include "bindings/kept_events.h"
#include "bindings/library.h"
#include "bindings/python_entry.h"
#include "bindings/quantised_rows.h"
#include "bindings/ranking.h"
#include "bindings/shared_rows.h"
#include "bindings/ssd_store.h"
#include "bindings/table_module.h"
#include "bindings/workers.h"

PYBIND11_MODULE(_native, m) {
  m.doc() = "Native core of mindspore_rec: tables of embedding rows.";
  msrec::InstallInterpreterLock();
  msrec::WatchPythonsEnd();
  msrec::BindTable(&m);
  msrec::BindDigest(&m);
  msrec::BindQuantisedRows(&m);
  msrec::BindSharedRows(&m);
  msrec::BindSsdStore(m);
  msrec::BindCheckedRows(&m);
  msrec::BindFiles(m);
  msrec::BindLibrary(m);
  msrec::BindDense(m);
  msrec::BindRanking(&m);
  msrec::BindKeptEvents(&m);
  msrec::BindWorkers(m);
}
