// SPDX-License-Identifier: Apache-2.0
//
// Binds the class Table of the Python module. Each Bind function binds one section of the methods
// in table/table.h. Every call that locks the table releases Python's lock, because the table may
// call a tier that is written in Python.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "bindings/calls.h"
#include "workers/all_rows.h"
#include "workers/made_tables.h"
#include "workers/registry.h"

namespace msrec {

// The C++ table inside a Python object.
struct PyTable {
  std::shared_ptr<Registered> registered;
  Table* operator->() const { return registered->table.get(); }
};

using TableClass = pybind11::class_<PyTable>;

// Calls ByExchange(self, fn) without Python's lock and returns the result.
template <typename Fn>
auto WithExchange(const PyTable& self, const Fn& fn) {
  return WithoutPython([&] { return ByExchange(*self.registered, fn); });
}

// Calls ByRequests(self, fn) without Python's lock and returns the result.
template <typename Fn>
auto WithRequests(const PyTable& self, const Fn& fn) {
  return WithoutPython([&] { return ByRequests(*self.registered, fn); });
}

// Creation, identity and closing.
void BindTableLife(TableClass* table);
void BindTableTraining(TableClass* table);
void BindTableDevice(TableClass* table);
void BindTableRows(TableClass* table);
// Export and import of all rows, and export of the rows that have changed since a mark.
void BindTableWhole(TableClass* table);
// Digests of rows and of whole tables.
void BindTableDigest(TableClass* table);
void BindTableAdmission(TableClass* table);
void BindTableEviction(TableClass* table);
void BindTableTiers(TableClass* table);
void BindTableStatistics(TableClass* table);

}  // namespace msrec
