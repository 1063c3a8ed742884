// SPDX-License-Identifier: Apache-2.0
//
// Guard and CallScope, which calls on a table begin with. Internal to table*.cc.
#pragma once

#include <new>

#include "table/table.h"
#include "util/float_mode.h"

namespace msrec {

// Takes the table for one call, and turns what can go wrong inside into the table's own exceptions.
class Table::Guard {
 public:
  explicit Guard(Table* table) : hold_(&table->core_.mutex) {
    if (table->core_.closed) throw TableClosed(table->core_.Where("is closed"));
  }

  template <typename Fn>
  static auto Run(Table* table, Fn fn) {
    Guard guard(table);
    try {
      return fn();
    } catch (const std::bad_alloc&) {
      throw OutOfMemory(table->core_.Where("out of memory; the table is as it was"));
    }
  }

 private:
  TableMutex::Hold hold_;
  const DefaultFloatMode float_mode_;
};

// Holds the rows that a call needs in host memory until the call is over, whatever has to make
// room.
class Table::CallScope {
 public:
  explicit CallScope(Table* table) : pins_(table->core_.context.pins) { pins_.BeginCall(); }
  ~CallScope() { pins_.EndCall(); }

 private:
  Pins& pins_;
};

}  // namespace msrec
