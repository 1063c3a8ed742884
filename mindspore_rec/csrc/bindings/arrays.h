// SPDX-License-Identifier: Apache-2.0
//
// Functions that check arrays, ids and paths from Python, and convert these arguments for the core.
// A wrong argument raises a Python exception that names the argument.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rows/batch.h"

namespace msrec {

template <typename T>
using Array = pybind11::array_t<T, pybind11::array::c_style>;

// Returns a view of the ids in the array, without a copy. Throws unless the array is int32 or int64
// and C-contiguous. Error messages begin with `argument`.
IdView Ids(const pybind11::array& array, const std::string& argument);
// Calls Ids() for an array that must have one dimension.
IdView IdVector(const pybind11::array& array, const std::string& argument);

// Returns the bytes of a path. `path` is a str, bytes, or an os.PathLike.
std::string PathOf(const pybind11::object& path);

// Returns the shape of `ids` followed by `width`.
std::vector<pybind11::ssize_t> WithWidth(const pybind11::array& ids, int32_t width);

IdFilter MakeFilter(std::optional<int64_t> padding_key, uint32_t coefficient = 1);

}  // namespace msrec
