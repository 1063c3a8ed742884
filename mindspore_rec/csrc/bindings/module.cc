// SPDX-License-Identifier: Apache-2.0
//
// The Python module mindspore_rec._native: tables outside a graph. The same shared object holds the
// operators of ops/custom_ops.cc, so that both see one registry.
#include <malloc.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>

#include "optim/kernels.h"
#include "table/registry.h"
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
}

void BindTable(py::module_& m) {
  py::class_<Handle>(m, "Table")
      .def(py::init([](const std::string& name, int32_t dim, uint64_t seed,
                       const std::string& init_kind, float init_a, float init_b, float init_lower,
                       float init_upper, int64_t vocabulary, bool outside_zeros,
                       float unknown_value, int64_t admission_threshold, int64_t max_idle_steps) {
             TableConfig config;
             config.name = name;
             config.dim = dim;
             config.seed = seed;
             config.initializer =
                 ParseInitializer(init_kind, init_a, init_b, init_lower, init_upper);
             config.vocabulary = vocabulary;
             config.outside_zeros = outside_zeros;
             config.unknown_value = unknown_value;
             config.admission.threshold = admission_threshold;
             config.eviction.max_idle_steps = max_idle_steps;
             return Handle{CreateTable(config)};
           }),
           py::kw_only(), py::arg("name"), py::arg("dim"), py::arg("seed") = 0,
           py::arg("init_kind") = "constant", py::arg("init_a") = 0.0f, py::arg("init_b") = 0.0f,
           py::arg("init_lower") = -2.0f, py::arg("init_upper") = 2.0f, py::arg("vocabulary") = 0,
           py::arg("outside_zeros") = false, py::arg("unknown_value") = 0.0f,
           py::arg("admission_threshold") = -1, py::arg("max_idle_steps") = -1)
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
      .def("lookup_train",
           [](const Handle& self, const py::array& ids) {
             const IdView view = Ids(self, ids, "ids");
             Array<float> out(WithDim(ids, self->dim()));
             float* data = out.mutable_data();
             int64_t ticket = 0;
             {
               Release release;
               ticket = self->LookupTrain(view, {}, data);
             }
             return py::make_tuple(out, ticket);
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
             int64_t step) {
            Release release;
            self->Step({learning_rate, weight_decay, grad_scale, step, 0});
          },
          py::arg("learning_rate"), py::arg("weight_decay") = 0.0f, py::arg("grad_scale") = 1.0f,
          py::arg("step") = 1)
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
          [](const Handle& self, uint64_t mark, bool with_state) {
            ExportedRows rows;
            {
              Release release;
              rows = self->ExportSince(mark, with_state);
            }
            return ToDict(std::move(rows), with_state);
          },
          py::arg("mark"), py::arg("with_state") = false)
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
           [](const Handle& self, bool trainable) { self->SetTrainable(trainable); })
      .def("set_admission_threshold",
           [](const Handle& self, int64_t threshold) { self->SetAdmissionThreshold(threshold); })
      .def("set_max_idle_steps",
           [](const Handle& self, int64_t steps) { self->SetMaxIdleSteps(steps); })
      .def("set_clock",
           [](const Handle& self, int64_t step, uint32_t time) { self->SetClock(step, time); })
      .def_property_readonly("step", [](const Handle& self) { return self->step(); })
      .def("stats",
           [](const Handle& self) {
             std::vector<std::pair<std::string, double>> stats;
             {
               Release release;
               stats = self->Stats();
             }
             py::dict out;
             for (const auto& [name, value] : stats) {
               if (name == "load_factor") {
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
      .def("close", [](const Handle& self) {
        Release release;
        CloseTable(self.registered->id);
      });
}

}  // namespace
}  // namespace msrec

PYBIND11_MODULE(_native, m) {
  m.doc() = "Native core of mindspore_rec: tables of embedding rows.";
  py::register_exception<msrec::TableClosed>(m, "TableClosedError", PyExc_RuntimeError);
  py::register_exception<msrec::OutOfMemory>(m, "OutOfMemoryError", PyExc_MemoryError);
  py::register_exception<msrec::NoOptimizer>(m, "NoOptimizerError", PyExc_RuntimeError);
  msrec::BindTable(m);
  m.def(
      "set_num_threads",
      [](int n) {
        if (n < 1 || n > 1024) throw py::value_error("num_threads must be in [1, 1024]");
        py::gil_scoped_release release;
        msrec::ThreadPool::Global().SetNumThreads(n);
      },
      py::arg("num_threads"));
  m.def("keep_freed_memory", &msrec::KeepFreedMemory);
  m.def("get_num_threads", [] { return msrec::ThreadPool::Global().num_threads(); });
  m.def("simd", [] { return std::string(msrec::ActiveKernels().name); });
}
