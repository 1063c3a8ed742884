// SPDX-License-Identifier: Apache-2.0
//
// Functions that convert the Python arguments of Table's methods: functions that check and wrap
// NumPy arrays, and functions that make rules from settings. A wrong argument raises a Python
// exception that names the table and the argument.
#pragma once

#include <cstdint>
#include <string>

#include "bindings/arrays.h"
#include "bindings/table_binding.h"

namespace msrec {

// Returns "table '<name>': " + what.
std::string Where(const PyTable& self, const std::string& what);

// Calls Ids(). Error messages begin with the table's name.
IdView Ids(const PyTable& self, const pybind11::array& array, const std::string& argument);

// Returns the floats of the array. Throws unless the array's shape begins with the shape of `ids`,
// and the array has `width` floats per id. If `ids` is null, the array may have any number of rows,
// but its last dimension must be `width`.
const float* Floats(const PyTable& self, const pybind11::array& array, const std::string& argument,
                    pybind11::ssize_t width, const pybind11::array* ids);

Initializer MakeInitializer(const std::string& kind, float a, float b, float lower, float upper);

Admission MakeAdmission(const std::string& kind, int64_t threshold, int64_t max_candidates,
                        int64_t sketch_bytes, int sketch_bits, double probability);

Eviction MakeEviction(int64_t max_idle_steps, int64_t max_idle_seconds, int64_t max_rows,
                      int64_t max_bytes, const std::string& order, double half_life_steps,
                      float min_norm, bool on_trigger);

// The dtypes are names such as "float32"; rounding is "stochastic" or "nearest".
RowPrecision MakePrecision(const std::string& value_dtype, const std::string& state_dtype,
                           const std::string& accumulator_dtype, const std::string& rounding);

}  // namespace msrec
