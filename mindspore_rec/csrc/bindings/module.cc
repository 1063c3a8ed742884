// SPDX-License-Identifier: Apache-2.0
//
// The Python module mindspore_rec._native: tables outside a graph. The same shared object holds the
// operators of ops/custom_ops.cc, so that both see one registry.
#include <malloc.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/files.h"
#include "bindings/interpreter.h"
#include "bindings/ssd_store.h"
#include "bindings/table_cache.h"
#include "optim/kernels.h"
#include "table/registry.h"
#include "util/crc32c.h"
#include "util/hash.h"
#include "util/thread_pool.h"

namespace py = pybind11;

namespace msrec {
namespace {

template <typename T>
using Array = py::array_t<T, py::array::c_style>;

// A table as Python holds it.
struct Handle {
  std::shared_ptr<Registered> registered;
  Table* operator->() const { return registered->table.get(); }
};

std::string Where(const Handle& self, const std::string& what) {
  return "table '" + self->config().name + "': " + what;
}

IdView Ids(const Handle& self, const py::array& array, const std::string& argument) {
  const bool is_int64 = py::isinstance<py::array_t<int64_t>>(array);
  if (!is_int64 && !py::isinstance<py::array_t<int32_t>>(array)) {
    throw py::type_error(Where(
        self, argument + " must be int32 or int64, got " + std::string(py::str(array.dtype()))));
  }
  if ((array.flags() & py::array::c_style) == 0) {
    throw py::value_error(Where(self, argument + " must be C-contiguous"));
  }
  return {array.data(), static_cast<size_t>(array.size()), is_int64};
}

// Requires one row of `width` floats an entry of `ids`, laid out as the ids are; of any number of
// ids where that is null.
const float* Floats(const Handle& self, const py::array& array, const std::string& argument,
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

// Hands a native array to NumPy without a copy.
template <typename T>
py::array Own(std::unique_ptr<T[]> data, std::vector<py::ssize_t> shape) {
  T* raw = data.release();
  py::capsule owner(raw, [](void* p) { delete[] static_cast<T*>(p); });
  return py::array_t<T>(std::move(shape), raw, owner);
}

py::dict ToDict(ExportedRows rows, bool with_state) {
  const auto n = static_cast<py::ssize_t>(rows.n);
  py::dict out;
  out["keys"] = Own(std::move(rows.keys), {n});
  out["values"] = Own(std::move(rows.values), {n, rows.dim});
  if (with_state) out["states"] = Own(std::move(rows.states), {n, rows.state_width});
  out["counts"] = Own(std::move(rows.counts), {n});
  out["last_steps"] = Own(std::move(rows.last_steps), {n});
  out["last_times"] = Own(std::move(rows.last_times), {n});
  out["present"] = Own(std::move(rows.present), {n});
  return out;
}

std::vector<py::ssize_t> WithDim(const py::array& ids, int32_t dim) {
  std::vector<py::ssize_t> shape(ids.shape(), ids.shape() + ids.ndim());
  shape.push_back(dim);
  return shape;
}

Initializer ParseInitializer(const std::string& kind, float a, float b, float lower, float upper) {
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

const char* ReasonName(EvictionReason reason) {
  switch (reason) {
    case EvictionReason::kIdleSteps:
      return "idle_steps";
    case EvictionReason::kIdleSeconds:
      return "idle_seconds";
    case EvictionReason::kCapacity:
      return "capacity";
    case EvictionReason::kNorm:
      return "norm";
    case EvictionReason::kNone:
      break;
  }
  return "";
}

// Evicted keys as arrays; `reasons` are numbers of EvictionReason.
py::dict EvictedToDict(const std::vector<EvictedKey>& evicted) {
  const auto n = static_cast<py::ssize_t>(evicted.size());
  Array<int64_t> keys(n), steps(n);
  Array<uint32_t> times(n);
  Array<uint8_t> reasons(n);
  for (py::ssize_t i = 0; i < n; ++i) {
    keys.mutable_data()[i] = evicted[i].key;
    steps.mutable_data()[i] = evicted[i].step;
    times.mutable_data()[i] = evicted[i].time;
    reasons.mutable_data()[i] = static_cast<uint8_t>(evicted[i].reason);
  }
  py::dict out;
  out["keys"] = keys;
  out["steps"] = steps;
  out["times"] = times;
  out["reasons"] = reasons;
  return out;
}

py::dict CountersToDict(const std::vector<RowMeta>& counters) {
  const auto n = static_cast<py::ssize_t>(counters.size());
  Array<int64_t> keys(n);
  Array<uint32_t> counts(n), steps(n), times(n);
  for (py::ssize_t i = 0; i < n; ++i) {
    keys.mutable_data()[i] = counters[i].key;
    counts.mutable_data()[i] = counters[i].count;
    steps.mutable_data()[i] = counters[i].last_step;
    times.mutable_data()[i] = counters[i].last_time;
  }
  py::dict out;
  out["keys"] = keys;
  out["counts"] = counts;
  out["last_steps"] = steps;
  out["last_times"] = times;
  return out;
}

void ImportCounters(const Handle& self, const Array<int64_t>& keys, const Array<uint32_t>& counts,
                    const Array<uint32_t>& last_steps, const Array<uint32_t>& last_times) {
  const py::ssize_t n = keys.size();
  if (counts.size() != n || last_steps.size() != n || last_times.size() != n) {
    throw py::value_error(
        Where(self, "keys, counts, last_steps and last_times must have the same length"));
  }
  std::vector<RowMeta> counters(n);
  for (py::ssize_t i = 0; i < n; ++i) {
    counters[i].key = keys.data()[i];
    counters[i].count = std::min(counts.data()[i], kMaxCount);
    counters[i].live = 1;
    counters[i].last_step = last_steps.data()[i];
    counters[i].last_time = last_times.data()[i];
  }
  py::gil_scoped_release release;
  self->ImportCounters(counters);
}

py::dict ExplanationToDict(const Explanation& e) {
  py::dict out;
  out["present"] = e.present;
  out["trainable"] = e.trained;
  out["count"] = e.count;
  out["last_step"] = e.last_step;
  out["last_time"] = e.last_time;
  out["norm"] = e.norm;
  out["standing"] = e.standing;
  out["step"] = e.step;
  out["event_time"] = e.time;
  out["threshold"] = e.admission.threshold;
  out["evicted_reason"] = ReasonName(e.evicted.reason);
  out["evicted_step"] = e.evicted.step;
  out["evicted_time"] = e.evicted.time;
  return out;
}

// By default glibc gives blocks over 32 MiB back to the system when they are freed, and a graph's
// output of that size is then page-faulted anew every step: at 160 k rows of 64 floats that is half
// of the step. Keeps up to 1 GiB of freed memory at the end of the heap instead.
void KeepFreedMemory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

using Release = py::gil_scoped_release;

void Import(const Handle& self, const py::array& keys, const py::object& values,
            const py::object& states, const py::object& counts, const py::object& last_steps,
            const py::object& last_times) {
  if (!py::isinstance<py::array_t<int64_t>>(keys))
    throw py::type_error(
        Where(self, "keys must be int64, got " + std::string(py::str(keys.dtype()))));
  const size_t n = Ids(self, keys, "keys").size;
  RowArrays rows;
  rows.keys = const_cast<int64_t*>(static_cast<const int64_t*>(keys.data()));
  int32_t width = 0;
  if (!values.is_none()) {
    rows.values =
        const_cast<float*>(Floats(self, values.cast<py::array>(), "values", self->dim(), &keys));
  }
  if (!states.is_none()) {
    const auto array = states.cast<py::array>();
    if (array.ndim() != 2)
      throw py::value_error(Where(self, "states must have shape [keys, state_width]"));
    width = static_cast<int32_t>(array.shape(1));
    rows.states = const_cast<float*>(Floats(self, array, "states", width, &keys));
  }
  const auto integers = [&](const py::object& object, const char* argument) -> uint32_t* {
    if (object.is_none()) return nullptr;
    const auto array = object.cast<py::array>();
    if (!py::isinstance<Array<uint32_t>>(array)) {
      throw py::type_error(
          Where(self, std::string(argument) + " must be a contiguous uint32 array"));
    }
    if (static_cast<size_t>(array.size()) != n) {
      throw py::value_error(Where(self, std::string(argument) + " must have one entry a key, got " +
                                            std::to_string(array.size()) + " for " +
                                            std::to_string(n)));
    }
    return const_cast<uint32_t*>(static_cast<const uint32_t*>(array.data()));
  };
  rows.counts = integers(counts, "counts");
  rows.last_steps = integers(last_steps, "last_steps");
  rows.last_times = integers(last_times, "last_times");
  Release release;
  self->Import(n, rows, width);
  self.registered->rows_missing.store(false);  // here they are
}

// Rows to be moved between a device cache and the host: (out_slots, in_slots, in_values,
// in_states).
py::tuple ToTuple(const Handle& self, const Table::RowMoves& moves) {
  const auto in = static_cast<py::ssize_t>(moves.in_slots.size());
  const py::ssize_t width = in == 0 ? 0 : static_cast<py::ssize_t>(moves.in_states.size()) / in;
  return py::make_tuple(
      Array<int32_t>(static_cast<py::ssize_t>(moves.out_slots.size()), moves.out_slots.data()),
      Array<int32_t>(in, moves.in_slots.data()),
      Array<float>(std::vector<py::ssize_t>{in, self->dim()}, moves.in_values.data()),
      Array<float>(std::vector<py::ssize_t>{in, width}, moves.in_states.data()));
}

// The memory of a matrix [rows, width] that the table will write to.
float* SharedMatrix(const Handle& self, const py::object& object, const char* argument,
                    int64_t rows, int32_t width) {
  if (object.is_none()) return nullptr;
  const auto array = object.cast<py::array>();
  if (!py::isinstance<Array<float>>(array) || !array.writeable() || array.ndim() != 2 ||
      array.shape(0) != rows || array.shape(1) != width) {
    throw py::value_error(Where(self, std::string(argument) + " must be writable float32 [" +
                                          std::to_string(rows) + ", " + std::to_string(width) +
                                          "]"));
  }
  return static_cast<float*>(const_cast<void*>(array.data()));
}

// The device cache of a table. It does not hold the arrays: the caller does, as long as the table
// is open.
void BindDevice(py::class_<Handle>* table) {
  table
      ->def(
          "attach_device",
          [](const Handle& self, int64_t rows, const std::string& policy,
             const py::object& values) {
            if (policy != "lru" && policy != "lfu") {
              throw py::value_error(Where(self, "policy must be 'lru' or 'lfu', got " + policy));
            }
            DeviceConfig config;
            config.rows = rows;
            config.lfu = policy == "lfu";
            config.shared = !values.is_none();
            float* data = SharedMatrix(self, values, "values", rows + 3, self->dim());
            Release release;
            self->AttachDevice(config, data);
          },
          py::arg("rows"), py::arg("policy"), py::arg("values"))
      .def("set_device_states",
           [](const Handle& self, int64_t rows, const py::object& states) {
             float* data =
                 SharedMatrix(self, states, "states", rows + 3, self->device_state_width());
             Release release;
             self->SetDeviceStates(data);
           })
      .def_property_readonly("device_state_width",
                             [](const Handle& self) { return self->device_state_width(); })
      .def(
          "prepare_device",
          [](const Handle& self, const py::array& ids, std::optional<int64_t> padding_key,
             uint32_t coefficient) {
            const IdView view = Ids(self, ids, "ids");
            IdFilter filter;
            filter.has_padding = padding_key.has_value();
            filter.padding_key = padding_key.value_or(0);
            filter.coefficient = coefficient;
            Table::RowMoves moves;
            {
              Release release;
              moves = self->Prepare(view, filter);
            }
            return ToTuple(self, moves);
          },
          py::arg("ids"), py::arg("padding_key") = std::nullopt, py::arg("coefficient") = 1)
      .def("fetch_dirty",
           [](const Handle& self) {
             Table::RowMoves moves;
             {
               Release release;
               moves = self->FetchDirty();
             }
             return ToTuple(self, moves);
           })
      .def("finish_move",
           [](const Handle& self, const Array<float>& values, const Array<float>& states) {
             const float* value = values.data();
             const float* state = states.data();
             const auto value_count = static_cast<size_t>(values.size());
             const auto state_count = static_cast<size_t>(states.size());
             Release release;
             self->FinishMove(value, value_count, state, state_count);
           });
}

void BindTable(py::module_& m) {
  py::class_<Handle> table(m, "Table");
  BindDevice(&table);
  table
      .def(py::init([](const std::string& name, int32_t dim, uint64_t seed,
                       const std::string& init_kind, float init_a, float init_b, float init_lower,
                       float init_upper, int64_t vocabulary, bool outside_zeros,
                       std::vector<float> unknown_value, std::vector<float> serving_unknown_value,
                       const std::string& admission_kind, int64_t admission_threshold,
                       int64_t max_candidates, int64_t sketch_bytes, int sketch_bits,
                       double probability, int64_t max_idle_steps, int64_t max_idle_seconds,
                       int64_t max_rows, int64_t max_bytes, const std::string& order,
                       double half_life_steps, float min_norm, bool on_trigger, bool replace) {
             TableConfig config;
             config.name = name;
             config.dim = dim;
             config.seed = seed;
             config.initializer =
                 ParseInitializer(init_kind, init_a, init_b, init_lower, init_upper);
             config.vocabulary = vocabulary;
             config.outside_zeros = outside_zeros;
             config.unknown_value = std::move(unknown_value);
             config.serving_unknown_value = std::move(serving_unknown_value);
             config.admission = MakeAdmission(admission_kind, admission_threshold, max_candidates,
                                              sketch_bytes, sketch_bits, probability);
             config.eviction = MakeEviction(max_idle_steps, max_idle_seconds, max_rows, max_bytes,
                                            order, half_life_steps, min_norm, on_trigger);
             return Handle{CreateTable(config, replace)};
           }),
           py::kw_only(), py::arg("name"), py::arg("dim"), py::arg("seed") = 0,
           py::arg("init_kind") = "constant", py::arg("init_a") = 0.0f, py::arg("init_b") = 0.0f,
           py::arg("init_lower") = -2.0f, py::arg("init_upper") = 2.0f, py::arg("vocabulary") = 0,
           py::arg("outside_zeros") = false, py::arg("unknown_value") = std::vector<float>{},
           py::arg("serving_unknown_value") = std::vector<float>{},
           py::arg("admission_kind") = "count", py::arg("admission_threshold") = -1,
           py::arg("max_candidates") = -1, py::arg("sketch_bytes") = 0, py::arg("sketch_bits") = 16,
           py::arg("probability") = 1.0, py::arg("max_idle_steps") = -1,
           py::arg("max_idle_seconds") = -1, py::arg("max_rows") = -1, py::arg("max_bytes") = -1,
           py::arg("order") = "lru", py::arg("half_life_steps") = 0.0, py::arg("min_norm") = -1.0f,
           py::arg("on_trigger") = false, py::arg("replace") = false)
      .def("check_not_replaced", [](const Handle& self) { CheckNotReplaced(*self.registered); })
      .def_property_readonly("id", [](const Handle& self) { return self.registered->id; })
      .def_property_readonly("name", [](const Handle& self) { return self->config().name; })
      .def_property_readonly("dim", [](const Handle& self) { return self->dim(); })
      .def_property_readonly("vocabulary",
                             [](const Handle& self) { return self->config().vocabulary; })
      .def_property_readonly("has_optimizer",
                             [](const Handle& self) { return self->has_optimizer(); })
      .def(
          "lookup",
          [](const Handle& self, const py::array& ids, bool insert,
             std::optional<int64_t> padding_key) {
            const IdView view = Ids(self, ids, "ids");
            Array<float> out(WithDim(ids, self->dim()));
            float* data = out.mutable_data();
            IdFilter filter;
            filter.has_padding = padding_key.has_value();
            filter.padding_key = padding_key.value_or(0);
            {
              Release release;
              if (insert) {
                self->Get(view, filter, true, data);
              } else {
                self->LookupEval(view, filter, data);
              }
            }
            return out;
          },
          py::arg("ids"), py::arg("insert") = false, py::arg("padding_key") = std::nullopt)
      .def(
          "lookup_train",
          [](const Handle& self, const py::array& ids, uint32_t coefficient) {
            const IdView view = Ids(self, ids, "ids");
            Array<float> out(WithDim(ids, self->dim()));
            float* data = out.mutable_data();
            IdFilter filter;
            filter.coefficient = coefficient;
            int64_t ticket = 0;
            {
              Release release;
              ticket = self->LookupTrain(view, filter, data);
            }
            return py::make_tuple(out, ticket);
          },
          py::arg("ids"), py::arg("coefficient") = 1)
      .def(
          "lookup_with_handles",
          [](const Handle& self, const py::array& ids, std::optional<int64_t> padding_key) {
            const IdView view = Ids(self, ids, "ids");
            Array<float> out(WithDim(ids, self->dim()));
            Array<int64_t> handles(WithDim(ids, 2));
            float* data = out.mutable_data();
            int64_t* at = handles.mutable_data();
            IdFilter filter;
            filter.has_padding = padding_key.has_value();
            filter.padding_key = padding_key.value_or(0);
            {
              Release release;
              self->LookupWithHandles(view, filter, data, at);
            }
            return py::make_tuple(out, handles);
          },
          py::arg("ids"), py::arg("padding_key") = std::nullopt)
      .def(
          "accumulate_by_handle",
          [](const Handle& self, const py::array& handles, const py::array& grad) {
            const IdView view = Ids(self, handles, "handles");
            if (!view.is_int64 || handles.ndim() < 1 || handles.shape(handles.ndim() - 1) != 2) {
              throw py::value_error(Where(self, "handles must be int64 of shape [..., 2]"));
            }
            const float* data = Floats(self, grad, "grad", self->dim(), nullptr);
            const size_t n = view.size / 2;
            if (static_cast<size_t>(grad.size()) != n * static_cast<size_t>(self->dim())) {
              throw py::value_error(Where(self, "grad must have one row a handle, got " +
                                                    std::to_string(grad.size() / self->dim()) +
                                                    " rows for " + std::to_string(n) + " handles"));
            }
            Release release;
            self->AccumulateByHandle(static_cast<const int64_t*>(view.data), n, data);
          })
      .def("accumulate",
           [](const Handle& self, int64_t ticket, const py::array& grad) {
             const float* data = Floats(self, grad, "grad", self->dim(), nullptr);
             const size_t rows = static_cast<size_t>(grad.size()) / self->dim();
             Release release;
             self->Accumulate(ticket, data, rows);
           })
      .def(
          "apply",
          [](const Handle& self, float learning_rate, float weight_decay, float grad_scale,
             int64_t step, int64_t binding) {
            Release release;
            self->Step({learning_rate, weight_decay, grad_scale, step, binding});
          },
          py::arg("learning_rate"), py::arg("weight_decay") = 0.0f, py::arg("grad_scale") = 1.0f,
          py::arg("step") = 1, py::arg("binding") = 0)
      .def("gradient_squared_norm",
           [](const Handle& self) {
             Release release;
             return self->GradientSquaredNorm();
           })
      .def("discard_gradients",
           [](const Handle& self) {
             Release release;
             self->DiscardGradients();
           })
      .def(
          "bind_optimizer",
          [](const Handle& self, const std::string& kind, float beta1, float beta2, float epsilon,
             float momentum, float decay, float l1, float l2, float lr_power,
             float initial_accumulator, bool nesterov, bool centered) {
            Rule rule;
            rule.kind = ParseRuleKind(kind);
            rule.beta1 = beta1;
            rule.beta2 = beta2;
            rule.epsilon = epsilon;
            rule.momentum = momentum;
            rule.decay = decay;
            rule.l1 = l1;
            rule.l2 = l2;
            rule.lr_power = lr_power;
            rule.initial_accumulator = initial_accumulator;
            rule.nesterov = nesterov;
            rule.centered = centered;
            Release release;
            return self->BindOptimizer(rule);
          },
          py::arg("kind"), py::kw_only(), py::arg("beta1") = 0.9f, py::arg("beta2") = 0.999f,
          py::arg("epsilon") = 1e-8f, py::arg("momentum") = 0.0f, py::arg("decay") = 0.9f,
          py::arg("l1") = 0.0f, py::arg("l2") = 0.0f, py::arg("lr_power") = -0.5f,
          py::arg("initial_accumulator") = 0.0f, py::arg("nesterov") = false,
          py::arg("centered") = false)
      .def("put",
           [](const Handle& self, const py::array& keys, const py::array& values) {
             const IdView view = Ids(self, keys, "keys");
             const float* data = Floats(self, values, "values", self->dim(), &keys);
             Release release;
             self->Put(view, data, view.size);
           })
      .def("erase",
           [](const Handle& self, const py::array& keys) {
             const IdView view = Ids(self, keys, "keys");
             Release release;
             return self->Erase(view);
           })
      .def("contains",
           [](const Handle& self, const py::array& keys) {
             const IdView view = Ids(self, keys, "keys");
             Array<bool> out(std::vector<py::ssize_t>(keys.shape(), keys.shape() + keys.ndim()));
             bool* data = out.mutable_data();
             {
               Release release;
               self->Contains(view, data);
             }
             return out;
           })
      .def("size",
           [](const Handle& self) {
             Release release;
             return self->Size();
           })
      .def("keys",
           [](const Handle& self) {
             std::vector<int64_t> keys;
             {
               Release release;
               keys = self->Keys();
             }
             return Array<int64_t>(static_cast<py::ssize_t>(keys.size()), keys.data());
           })
      .def(
          "export_rows",
          [](const Handle& self, bool with_state) {
            ExportedRows rows;
            {
              Release release;
              rows = self->Export(with_state);
            }
            return ToDict(std::move(rows), with_state);
          },
          py::arg("with_state") = false)
      .def(
          "export_parts",
          [](const Handle& self, const py::function& take, bool with_state) {
            std::exception_ptr raised;
            struct Stop {};
            try {
              Release release;
              self->ExportParts(with_state, [&](ExportedRows rows) {
                py::gil_scoped_acquire acquire;
                try {
                  take(ToDict(std::move(rows), with_state));
                } catch (...) {
                  raised = std::current_exception();
                  throw Stop();
                }
              });
            } catch (const Stop&) {
              std::rethrow_exception(raised);
            }
          },
          py::arg("take"), py::arg("with_state") = false)
      .def(
          "export_keys",
          [](const Handle& self, const py::array& keys, bool with_state) {
            const IdView view = Ids(self, keys, "keys");
            ExportedRows rows;
            {
              Release release;
              rows = self->ExportKeys(view, with_state);
            }
            return ToDict(std::move(rows), with_state);
          },
          py::arg("keys"), py::arg("with_state") = false)
      .def("mark",
           [](const Handle& self) {
             Release release;
             return self->Mark();
           })
      .def(
          "export_since",
          [](const Handle& self, uint64_t mark, bool with_state, bool sweep) {
            ExportedRows rows;
            {
              Release release;
              rows = self->ExportSince(mark, with_state, sweep);
            }
            return ToDict(std::move(rows), with_state);
          },
          py::arg("mark"), py::arg("with_state") = false, py::arg("sweep") = true)
      .def("release_before",
           [](const Handle& self, uint64_t mark) {
             Release release;
             self->ReleaseBefore(mark);
           })
      .def("import_rows", &Import, py::arg("keys"), py::arg("values") = py::none(),
           py::arg("states") = py::none(), py::arg("counts") = py::none(),
           py::arg("last_steps") = py::none(), py::arg("last_times") = py::none())
      .def("clear",
           [](const Handle& self) {
             Release release;
             self->Clear();
           })
      .def("evict_due",
           [](const Handle& self) {
             Release release;
             self->EvictAll();
           })
      .def("set_trainable",
           [](const Handle& self, bool trainable) {
             Release release;
             self->SetTrainable(trainable);
           })
      // Whether operators refuse to read rows: others belong to the weights that were loaded.
      .def_property(
          "rows_missing", [](const Handle& self) { return self.registered->rows_missing.load(); },
          [](const Handle& self, bool missing) { self.registered->rows_missing.store(missing); })
      .def(
          "evict",
          [](const Handle& self, bool at_once) {
            Release release;
            self->Evict(at_once);
          },
          py::arg("at_once") = true)
      .def("set_admission_threshold",
           [](const Handle& self, int64_t threshold) {
             Release release;
             self->SetAdmissionThreshold(threshold);
           })
      .def(
          "set_eviction",
          [](const Handle& self, int64_t max_idle_steps, int64_t max_idle_seconds, int64_t max_rows,
             int64_t max_bytes, const std::string& order, double half_life_steps, float min_norm,
             bool on_trigger) {
            const Eviction eviction =
                MakeEviction(max_idle_steps, max_idle_seconds, max_rows, max_bytes, order,
                             half_life_steps, min_norm, on_trigger);
            Release release;
            self->SetEviction(eviction);
          },
          py::kw_only(), py::arg("max_idle_steps") = -1, py::arg("max_idle_seconds") = -1,
          py::arg("max_rows") = -1, py::arg("max_bytes") = -1, py::arg("order") = "lru",
          py::arg("half_life_steps") = 0.0, py::arg("min_norm") = -1.0f,
          py::arg("on_trigger") = false)
      .def("set_scores",
           [](const Handle& self, const py::array& keys, const py::array& scores) {
             const IdView view = Ids(self, keys, "keys");
             const float* data = Floats(self, scores, "scores", 1, &keys);
             Release release;
             return self->SetScores(view, data);
           })
      .def("set_event_time",
           [](const Handle& self, int64_t seconds) {
             Release release;
             self->SetEventTime(seconds);
           })
      .def("set_clock",
           [](const Handle& self, int64_t step, uint32_t time) {
             Release release;
             self->SetClock(step, time);
           })
      .def_property_readonly("horizon",
                             [](const Handle& self) {
                               Horizon horizon;
                               {
                                 Release release;
                                 horizon = self->horizon();
                               }
                               return py::make_tuple(horizon.step, horizon.time);
                             })
      .def("set_horizon",
           [](const Handle& self, int64_t step, int64_t time) {
             Release release;
             self->SetHorizon({step, time});
           })
      .def("export_counters",
           [](const Handle& self) {
             std::vector<RowMeta> counters;
             {
               Release release;
               counters = self->ExportCounters();
             }
             return CountersToDict(counters);
           })
      .def("import_counters", &ImportCounters, py::arg("keys"), py::arg("counts"),
           py::arg("last_steps"), py::arg("last_times"))
      .def("export_sketch",
           [](const Handle& self) {
             std::vector<char> memory;
             {
               Release release;
               memory = self->ExportSketch();
             }
             return py::bytes(memory.data(), memory.size());
           })
      .def("import_sketch",
           [](const Handle& self, const py::bytes& memory) {
             const std::string_view view = memory;
             Release release;
             self->ImportSketch(view.data(), view.size());
           })
      .def("collect_evicted",
           [](const Handle& self, bool on) {
             Release release;
             self->CollectEvicted(on);
           })
      .def("take_evicted",
           [](const Handle& self) {
             std::vector<EvictedKey> evicted;
             {
               Release release;
               evicted = self->TakeEvicted();
             }
             return EvictedToDict(evicted);
           })
      .def("explain",
           [](const Handle& self, int64_t key) {
             Explanation explanation;
             {
               Release release;
               explanation = self->Explain(key);
             }
             return ExplanationToDict(explanation);
           })
      .def_property_readonly("event_time",
                             [](const Handle& self) {
                               Release release;
                               return self->time();
                             })
      .def_property_readonly("first_time",
                             [](const Handle& self) {
                               Release release;
                               return self->first_time();
                             })
      .def_property_readonly("step",
                             [](const Handle& self) {
                               Release release;
                               return self->step();
                             })
      .def("stats",
           [](const Handle& self) {
             std::vector<std::pair<std::string, double>> stats;
             {
               Release release;
               stats = self->Stats();
             }
             py::dict out;
             for (const auto& [name, value] : stats) {
               const std::string seconds = "_seconds";
               const bool timed =
                   name.size() > seconds.size() &&
                   name.compare(name.size() - seconds.size(), seconds.size(), seconds) == 0;
               if (timed || name == "load_factor") {
                 out[py::str(name)] = value;
               } else {
                 out[py::str(name)] = static_cast<int64_t>(value);
               }
             }
             return out;
           })
      .def("op_times",
           [](const Handle& self) {
             const char* names[] = {"lookup", "accumulate", "step", "map"};
             py::dict out;
             for (int i = 0; i < static_cast<int>(OpKind::kCount); ++i) {
               out[names[i]] = py::make_tuple(self.registered->times.calls[i].load(),
                                              self.registered->times.nanoseconds[i].load());
             }
             return out;
           })
      .def(
          "set_cache",
          [](const Handle& self, int64_t host_rows, int64_t host_bytes, const std::string& policy,
             const py::list& levels) {
            CacheSettings settings = MakeCacheSettings(host_rows, host_bytes, policy, levels);
            Release release;
            self->SetCache(std::move(settings));
          },
          py::kw_only(), py::arg("host_rows") = -1, py::arg("host_bytes") = -1,
          py::arg("policy") = "lru", py::arg("levels"))
      .def_property_readonly("has_cache", [](const Handle& self) { return self->has_cache(); })
      .def("prefetch",
           [](const Handle& self, const py::array& ids) {
             const IdView view = Ids(self, ids, "ids");
             Release release;
             return self->Prefetch(view);
           })
      .def("prefetch_wait",
           [](const Handle& self, int64_t number) {
             Release release;
             return self->PrefetchWait(number);
           })
      .def("prefetch_done",
           [](const Handle& self, int64_t number) {
             Release release;
             self->PrefetchDone(number);
           })
      .def("flush",
           [](const Handle& self) {
             Release release;
             self->Flush();
           })
      .def("recent_lookups",
           [](const Handle& self) {
             Release release;
             return self->RecentLookups();
           })
      .def("close", [](const Handle& self) {
        Release release;
        CloseTable(self.registered->id);
      });
}

}  // namespace
}  // namespace msrec

PYBIND11_MODULE(_native, m) {
  m.doc() = "Native core of mindspore_rec: tables of embedding rows.";
  msrec::InstallInterpreterLock();
  py::dict reasons;
  for (int i = 1; i <= static_cast<int>(msrec::EvictionReason::kNorm); ++i) {
    reasons[py::int_(i)] = msrec::ReasonName(static_cast<msrec::EvictionReason>(i));
  }
  m.attr("EVICTION_REASONS") = reasons;
  py::register_exception<msrec::TableClosed>(m, "TableClosedError", PyExc_RuntimeError);
  py::register_exception<msrec::OutOfMemory>(m, "OutOfMemoryError", PyExc_MemoryError);
  py::register_exception<msrec::StaleHandle>(m, "StaleHandleError", PyExc_ValueError);
  py::register_exception<msrec::NoOptimizer>(m, "NoOptimizerError", PyExc_RuntimeError);
  msrec::BindTable(m);
  msrec::BindSsdStore(m);
  msrec::BindFiles(m);
  m.def(
      "set_num_threads",
      [](int n) {
        if (n < 1 || n > 1024) throw py::value_error("num_threads must be in [1, 1024]");
        py::gil_scoped_release release;
        msrec::ThreadPool::Global().SetNumThreads(n);
      },
      py::arg("num_threads"));
  m.def(
      "hash_ids",
      [](const py::array& ids) {
        const bool is_int64 = py::isinstance<py::array_t<int64_t>>(ids);
        if (!is_int64 && !py::isinstance<py::array_t<int32_t>>(ids)) {
          throw py::type_error("ids must be int32 or int64");
        }
        if ((ids.flags() & py::array::c_style) == 0) {
          throw py::value_error("ids must be C-contiguous");
        }
        return msrec::HashIds({ids.data(), static_cast<size_t>(ids.size()), is_int64});
      },
      py::arg("ids"));
  m.def(
      "crc32c",
      [](const py::buffer& data, uint32_t crc) {
        const py::buffer_info bytes = data.request();
        if (bytes.ndim != 1 || bytes.strides[0] != bytes.itemsize) {
          throw py::value_error("data must be contiguous bytes");
        }
        const py::gil_scoped_release release;
        return msrec::Crc32c(crc, bytes.ptr, static_cast<size_t>(bytes.size * bytes.itemsize));
      },
      py::arg("data"), py::arg("crc") = 0);
  m.def(
      "owners",
      [](const py::array_t<int64_t, py::array::c_style>& keys, uint32_t workers) {
        if (workers < 1) throw py::value_error("workers must be at least 1");
        py::array_t<uint32_t> owners(keys.size());
        for (py::ssize_t i = 0; i < keys.size(); ++i) {
          owners.mutable_data()[i] = msrec::OwnerOf(keys.data()[i], workers);
        }
        return owners;
      },
      py::arg("keys"), py::arg("workers"));
  m.def("keep_freed_memory", &msrec::KeepFreedMemory);
  m.def("get_num_threads", [] { return msrec::ThreadPool::Global().num_threads(); });
  m.def("simd", [] { return std::string(msrec::ActiveKernels().name); });
}
