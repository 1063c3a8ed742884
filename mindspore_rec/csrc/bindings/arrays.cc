// SPDX-License-Identifier: Apache-2.0
#include "bindings/arrays.h"

namespace py = pybind11;

namespace msrec {

IdView Ids(const py::array& array, const std::string& argument) {
  const bool is_int64 = py::isinstance<py::array_t<int64_t>>(array);
  if (!is_int64 && !py::isinstance<py::array_t<int32_t>>(array)) {
    throw py::type_error(argument + " must be int32 or int64, got " +
                         std::string(py::str(array.dtype())));
  }
  if ((array.flags() & py::array::c_style) == 0) {
    throw py::value_error(argument + " must be C-contiguous");
  }
  return {array.data(), static_cast<size_t>(array.size()), is_int64};
}

IdView IdVector(const py::array& array, const std::string& argument) {
  const IdView view = Ids(array, argument);
  if (array.ndim() != 1) throw py::value_error(argument + " must have one dimension");
  return view;
}

std::string PathOf(const py::object& path) {
  std::string text = py::bytes(py::module_::import("os").attr("fsencode")(path));
  // Paths with a NUL are refused, because a system call would ignore the part of the path after the
  // first NUL.
  if (text.find('\0') != std::string::npos) {
    throw py::value_error("path must have no NUL, got " + std::string(py::repr(path)));
  }
  return text;
}

std::vector<py::ssize_t> WithWidth(const py::array& ids, int32_t width) {
  std::vector<py::ssize_t> shape(ids.shape(), ids.shape() + ids.ndim());
  shape.push_back(width);
  return shape;
}

IdFilter MakeFilter(std::optional<int64_t> padding_key, uint32_t coefficient) {
  IdFilter filter;
  filter.has_padding = padding_key.has_value();
  filter.padding_key = padding_key.value_or(0);
  filter.coefficient = coefficient;
  return filter;
}

}  // namespace msrec
