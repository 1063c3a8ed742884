// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "bindings/table_arguments.h"

namespace py = pybind11;

namespace msrec {
namespace {

Array<float> Lookup(const PyTable& self, const py::array& ids, bool insert,
                    std::optional<int64_t> padding_key) {
  const IdView view = Ids(self, ids, "ids");
  const IdFilter filter = MakeFilter(padding_key);
  Array<float> out(WithWidth(ids, self->dim()));
  float* data = out.mutable_data();
  WithRequests(self, [&](auto& rows) { rows.Get(view, filter, insert, data); });
  return out;
}

// (rows, ticket).
py::tuple LookupTrain(const PyTable& self, const py::array& ids, uint32_t coefficient) {
  const IdView view = Ids(self, ids, "ids");
  const IdFilter filter = MakeFilter(std::nullopt, coefficient);
  Array<float> out(WithWidth(ids, self->dim()));
  float* data = out.mutable_data();
  const int64_t ticket =
      WithExchange(self, [&](auto& table) { return table.LookupTrain(view, filter, data); });
  return py::make_tuple(out, ticket);
}

// (rows, handles).
py::tuple LookupWithHandles(const PyTable& self, const py::array& ids,
                            std::optional<int64_t> padding_key) {
  const IdView view = Ids(self, ids, "ids");
  const IdFilter filter = MakeFilter(padding_key);
  CheckRowsGiven(*self.registered);
  Array<float> out(WithWidth(ids, self->dim()));
  Array<int64_t> handles(WithWidth(ids, 2));
  float* data = out.mutable_data();
  int64_t* at = handles.mutable_data();
  WithExchange(self, [&](auto& table) { table.LookupWithHandles(view, filter, data, at); });
  return py::make_tuple(out, handles);
}

void AccumulateByHandle(const PyTable& self, const py::array& handles, const py::array& grad) {
  const IdView view = Ids(self, handles, "handles");
  if (!view.is_int64 || handles.ndim() < 1 || handles.shape(handles.ndim() - 1) != 2) {
    throw py::value_error(Where(self, "handles must be int64 of shape [..., 2]"));
  }
  const float* data = Floats(self, grad, "grad", self->dim(), nullptr);
  const size_t n = view.size / 2;
  if (static_cast<size_t>(grad.size()) != n * static_cast<size_t>(self->dim())) {
    throw py::value_error(Where(self, "grad must have one row a handle, got " +
                                          std::to_string(grad.size() / self->dim()) + " rows for " +
                                          std::to_string(n) + " handles"));
  }
  const auto* given = static_cast<const int64_t*>(view.data);
  WithExchange(self, [&](auto& table) { table.AccumulateByHandle(given, n, data); });
}

void Accumulate(const PyTable& self, int64_t ticket, const py::array& grad) {
  const float* data = Floats(self, grad, "grad", self->dim(), nullptr);
  const size_t rows = static_cast<size_t>(grad.size()) / self->dim();
  WithExchange(self, [&](auto& table) { table.Accumulate(ticket, data, rows); });
}

// If there are several workers, sends the table's gradients to the workers that own the rows.
void ExchangeItsGradients(const PyTable& self) {
  ShardedTable* all = self.registered->over_workers.get();
  if (all != nullptr) WithoutPython([&] { ExchangeGradients({all}, {false}); });
}

void Apply(const PyTable& self, float learning_rate, float weight_decay, float grad_scale,
           int64_t step, int64_t binding) {
  const StepInput input{learning_rate, weight_decay, grad_scale, step, binding};
  WithExchange(self, [&](auto& table) { table.Step(input); });
}

double GradientSquaredNorm(const PyTable& self) {
  return WithExchange(self, [](auto& table) { return table.GradientSquaredNorm(); });
}

void DiscardGradients(const PyTable& self) {
  WithExchange(self, [](auto& table) { table.DiscardGradients(); });
}

int64_t BindOptimizer(const PyTable& self, const std::string& kind, float beta1, float beta2,
                      float epsilon, float momentum, float decay, float l1, float l2,
                      float lr_power, float initial_accumulator, bool nesterov, bool centered) {
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
  return WithoutPython([&] { return self->BindOptimizer(rule); });
}

}  // namespace

void BindTableTraining(TableClass* table) {
  table
      ->def("lookup", &Lookup, py::arg("ids"), py::arg("insert") = false,
            py::arg("padding_key") = std::nullopt)
      .def("lookup_train", &LookupTrain, py::arg("ids"), py::arg("coefficient") = 1)
      .def("lookup_with_handles", &LookupWithHandles, py::arg("ids"),
           py::arg("padding_key") = std::nullopt)
      .def("accumulate", &Accumulate)
      .def("exchange_gradients", &ExchangeItsGradients)
      .def("accumulate_by_handle", &AccumulateByHandle)
      .def("apply", &Apply, py::arg("learning_rate"), py::arg("weight_decay") = 0.0f,
           py::arg("grad_scale") = 1.0f, py::arg("step") = 1, py::arg("binding") = 0)
      .def("gradient_squared_norm", &GradientSquaredNorm)
      .def("discard_gradients", &DiscardGradients)
      .def_property_readonly("has_optimizer",
                             [](const PyTable& self) { return self->has_optimizer(); })
      .def("bind_optimizer", &BindOptimizer, py::arg("kind"), py::kw_only(),
           py::arg("beta1") = 0.9f, py::arg("beta2") = 0.999f, py::arg("epsilon") = 1e-8f,
           py::arg("momentum") = 0.0f, py::arg("decay") = 0.9f, py::arg("l1") = 0.0f,
           py::arg("l2") = 0.0f, py::arg("lr_power") = -0.5f, py::arg("initial_accumulator") = 0.0f,
           py::arg("nesterov") = false, py::arg("centered") = false)
      .def("set_trainable", [](const PyTable& self, bool trainable) {
        WithoutPython([&] { self->SetTrainable(trainable); });
      });
}

}  // namespace msrec
