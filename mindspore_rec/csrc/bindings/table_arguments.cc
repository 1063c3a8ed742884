// SPDX-License-Identifier: Apache-2.0
#include "bindings/table_arguments.h"

#include <algorithm>
#include <map>

namespace py = pybind11;

namespace msrec {

std::string Where(const PyTable& self, const std::string& what) {
  return "table '" + self->config().name + "': " + what;
}

IdView Ids(const PyTable& self, const py::array& array, const std::string& argument) {
  return Ids(array, Where(self, argument));
}

const float* Floats(const PyTable& self, const py::array& array, const std::string& argument,
                    py::ssize_t width, const py::array* ids) {
  if (!py::isinstance<py::array_t<float>>(array)) {
    throw py::type_error(
        Where(self, argument + " must be float32, got " + std::string(py::str(array.dtype()))));
  }
  if ((array.flags() & py::array::c_style) == 0) {
    throw py::value_error(Where(self, argument + " must be C-contiguous"));
  }
  const py::ssize_t leading = ids != nullptr ? ids->ndim() : 0;
  bool fits = array.ndim() >= std::max<py::ssize_t>(leading, 1);
  for (py::ssize_t d = 0; fits && d < leading; ++d) fits = array.shape(d) == ids->shape(d);
  if (fits && ids != nullptr) fits = array.size() == ids->size() * width;
  if (fits && ids == nullptr) fits = array.shape(array.ndim() - 1) == width;
  if (!fits) {
    throw py::value_error(Where(
        self,
        argument + " must have one row of " + std::to_string(width) + " floats a key, got shape " +
            std::string(py::str(array.attr("shape"))) +
            (ids == nullptr ? "" : " for keys of " + std::string(py::str(ids->attr("shape"))))));
  }
  return static_cast<const float*>(array.data());
}

Initializer MakeInitializer(const std::string& kind, float a, float b, float lower, float upper) {
  Initializer init;
  if (kind == "constant") {
    init.kind = InitKind::kConstant;
  } else if (kind == "uniform") {
    init.kind = InitKind::kUniform;
  } else if (kind == "normal") {
    init.kind = InitKind::kNormal;
  } else if (kind == "truncated_normal") {
    init.kind = InitKind::kTruncatedNormal;
  } else {
    throw py::value_error("initializer kind '" + kind +
                          "' is unknown; legal: constant, uniform, normal, truncated_normal");
  }
  init.a = a;
  init.b = b;
  init.lower = lower;
  init.upper = upper;
  return init;
}

Admission MakeAdmission(const std::string& kind, int64_t threshold, int64_t max_candidates,
                        int64_t sketch_bytes, int sketch_bits, double probability) {
  static const std::map<std::string, AdmissionKind> kinds = {
      {"count", AdmissionKind::kCount},
      {"sketch", AdmissionKind::kSketch},
      {"probability", AdmissionKind::kProbability}};
  const auto found = kinds.find(kind);
  if (found == kinds.end()) {
    throw py::value_error("admission_kind '" + kind +
                          "' is unknown; legal: count, sketch, probability");
  }
  return {found->second, threshold, max_candidates, sketch_bytes, sketch_bits, probability};
}

Eviction MakeEviction(int64_t max_idle_steps, int64_t max_idle_seconds, int64_t max_rows,
                      int64_t max_bytes, const std::string& order, double half_life_steps,
                      float min_norm, bool on_trigger) {
  static const std::map<std::string, EvictionOrder> orders = {
      {"lru", EvictionOrder::kLru},
      {"lfu", EvictionOrder::kLfu},
      {"lfu_decay", EvictionOrder::kLfuDecay},
      {"score", EvictionOrder::kScore}};
  const auto found = orders.find(order);
  if (found == orders.end()) {
    throw py::value_error("order '" + order + "' is unknown; legal: lru, lfu, lfu_decay, score");
  }
  return {max_idle_steps, max_idle_seconds, max_rows, max_bytes,
          found->second,  half_life_steps,  min_norm, on_trigger};
}

RowPrecision MakePrecision(const std::string& value_dtype, const std::string& state_dtype,
                           const std::string& accumulator_dtype, const std::string& rounding) {
  RowPrecision precision;
  precision.value = ParseNumberType(value_dtype, "value_dtype");
  precision.state = ParseNumberType(state_dtype, "state_dtype");
  precision.accumulator = ParseNumberType(accumulator_dtype, "accumulator_dtype");
  if (rounding != "stochastic" && rounding != "nearest") {
    throw py::value_error("rounding must be 'stochastic' or 'nearest', got '" + rounding + "'");
  }
  precision.stochastic = rounding == "stochastic";
  return precision;
}

}  // namespace msrec
