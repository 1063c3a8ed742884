// SPDX-License-Identifier: Apache-2.0
//
// TableGuard and CallScope: objects that exist during a call on a table. Each method of a table
// first creates a TableGuard. Most methods call TableGuard::Run, which creates the TableGuard. This
// header is internal to table*.cc.
#pragma once

#include <new>

#include "table/core/table_core.h"
#include "util/float_mode.h"

namespace msrec {

// Locks the table for one call, and translates internal errors into the table's exceptions.
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

// Keeps the rows of a call in host memory until the call ends, even if other rows must be demoted.
class CallScope {
 public:
  explicit CallScope(TableCore* core) : pins_(core->context.pins) { pins_.BeginCall(); }
  ~CallScope() { pins_.EndCall(); }

 private:
  Pins& pins_;
};

}  // namespace msrec
