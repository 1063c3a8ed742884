// SPDX-License-Identifier: Apache-2.0
//
// TableGuard and CallScope, which calls on a table begin with. Internal to table*.cc.
#pragma once

#include <new>

#include "table/core/table_core.h"
#include "util/float_mode.h"

namespace msrec {

// Takes the table for one call, and turns what can go wrong inside into the table's own exceptions.
class TableGuard {
 public:
  explicit TableGuard(TableCore* core) : hold_(&core->mutex) {
    if (core->closed) throw TableClosed(core->Where("is closed"));
  }

  template <typename Fn>
  static auto Run(TableCore* core, Fn fn) {
    TableGuard guard(core);
    try {
      return fn();
    } catch (const std::bad_alloc&) {
      throw OutOfMemory(core->Where("out of memory; the table is as it was"));
    }
  }

 private:
  TableMutex::Hold hold_;
  const DefaultFloatMode float_mode_;
};

// Holds the rows that a call needs in host memory until the call is over, whatever has to make
// room.
class CallScope {
 public:
  explicit CallScope(TableCore* core) : pins_(core->context.pins) { pins_.BeginCall(); }
  ~CallScope() { pins_.EndCall(); }

 private:
  Pins& pins_;
};

}  // namespace msrec
