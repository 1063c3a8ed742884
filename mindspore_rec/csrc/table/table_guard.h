// SPDX-License-Identifier: Apache-2.0
//
// What every call on a table begins with. Internal to table*.cc.
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

// Rows of the call under way stay, whatever has to make room.
class Table::CallPins {
 public:
  explicit CallPins(Table* table) : table_(table) {
    if (table->below_ != nullptr) table->core_.context.pins.call = table->below_->NextSerial();
  }
  ~CallPins() { table_->core_.context.pins.call = 0; }

 private:
  Table* table_;
};

template <typename Fn>
auto Table::OnTier(Fn fn) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(core_.Where(error.what()));
  }
}

}  // namespace msrec
