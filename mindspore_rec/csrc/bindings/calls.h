// SPDX-License-Identifier: Apache-2.0
//
// Functions that release Python's lock (the GIL) and then run C++ code.
#pragma once

#include <pybind11/pybind11.h>

#include "util/float_mode.h"

namespace msrec {

// Calls fn() without Python's lock and returns the result.
template <typename Fn>
auto WithoutPython(Fn fn) {
  pybind11::gil_scoped_release release;
  return fn();
}

// Calls fn() without Python's lock, in IEEE 754's default float mode.
template <typename Fn>
auto Natively(const Fn& fn) {
  return WithoutPython([&] {
    const DefaultFloatMode float_mode;
    return fn();
  });
}

}  // namespace msrec
