// SPDX-License-Identifier: Apache-2.0
//
// Converts the Python arguments of Table's methods: checks NumPy arrays and wraps them for the
// core, and makes rules from settings. A wrong argument raises a Python exception that names the
// table and the argument.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/table_binding.h"

namespace msrec {

template <typename T>
using Array = pybind11::array_t<T, pybind11::array::c_style>;

// Returns "table '<name>': " + what.
std::string Where(const PyTable& self, const std::string& what);

// Returns a view of the ids in the array, without a copy. Throws unless the array is int32 or int64
// and C-contiguous. Error messages begin with `argument`.
IdView Ids(const pybind11::array& array, const std::string& argument);
// Calls Ids(), with error messages that begin with the table's name.
IdView Ids(const PyTable& self, const pybind11::array& array, const std::string& argument);

// Calls Ids() for an array that must have one dimension.
IdView IdVector(const pybind11::array& array, const std::string& argument);

// Returns a path as text, as os.fspath does.
std::string PathOf(const pybind11::object& path);

// Returns the floats of the array. Throws unless the array's shape is the shape of `ids` followed
// by `width`. If `ids` is null, the array may have any number of rows.
const float* Floats(const PyTable& self, const pybind11::array& array, const std::string& argument,
                    pybind11::ssize_t width, const pybind11::array* ids);

// Returns the shape of `ids` followed by `width`.
std::vector<pybind11::ssize_t> WithWidth(const pybind11::array& ids, int32_t width);

IdFilter MakeFilter(std::optional<int64_t> padding_key, uint32_t coefficient = 1);

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
