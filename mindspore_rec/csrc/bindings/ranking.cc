// SPDX-License-Identifier: Apache-2.0
#include "bindings/ranking.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/calls.h"
#include "ranking/item_ranks.h"

namespace py = pybind11;

namespace msrec {
namespace {

ScoredVectors VectorsOf(const Array<float>& users, const Array<float>& items,
                        const std::optional<Array<float>>& bias) {
  if (users.ndim() != 2 || items.ndim() != 2 || users.shape(1) != items.shape(1)) {
    throw py::value_error("users and items must be arrays [B, dim] and [I, dim]");
  }
  if (bias && (bias->ndim() != 1 || bias->shape(0) != items.shape(0))) {
    throw py::value_error("bias must be an array [" + std::to_string(items.shape(0)) + "]");
  }
  return {users.data(),
          static_cast<size_t>(users.shape(0)),
          items.data(),
          static_cast<size_t>(items.shape(0)),
          bias ? bias->data() : nullptr,
          static_cast<size_t>(users.shape(1))};
}

ItemLists ListsOf(const Array<int64_t>& values, const Array<int64_t>& offsets,
                  const ScoredVectors& vectors, const std::string& name) {
  const auto lists = static_cast<py::ssize_t>(vectors.num_users);
  bool fits = values.ndim() == 1 && offsets.ndim() == 1 && offsets.size() == lists + 1 &&
              offsets.data()[0] == 0 && offsets.data()[lists] == values.size();
  for (py::ssize_t i = 0; fits && i < lists; ++i) {
    fits = offsets.data()[i] <= offsets.data()[i + 1];
  }
  if (!fits) {
    throw py::value_error(name + "_offsets must rise from 0 to " + std::to_string(values.size()) +
                          " in " + std::to_string(lists + 1) + " numbers");
  }
  for (py::ssize_t i = 0; i < values.size(); ++i) {
    const int64_t item = values.data()[i];
    if (item < 0 || item >= static_cast<int64_t>(vectors.num_items)) {
      throw py::value_error(name + " must be items in [0, " + std::to_string(vectors.num_items) +
                            "), got " + std::to_string(item));
    }
  }
  return {values.data(), offsets.data()};
}

Array<double> RanksOfTargets(const Array<float>& users, const Array<float>& items,
                             const std::optional<Array<float>>& bias, const Array<int64_t>& target,
                             const Array<int64_t>& target_offsets, const Array<int64_t>& masked,
                             const Array<int64_t>& masked_offsets) {
  const ScoredVectors vectors = VectorsOf(users, items, bias);
  const ItemLists targets = ListsOf(target, target_offsets, vectors, "target");
  const ItemLists left_out = ListsOf(masked, masked_offsets, vectors, "masked");
  Array<double> ranks(target.size());
  double* to = ranks.mutable_data();
  Natively([&] { RankTargets(vectors, targets, left_out, to); });
  return ranks;
}

py::tuple BestItems(const Array<float>& users, const Array<float>& items,
                    const std::optional<Array<float>>& bias, const Array<int64_t>& masked,
                    const Array<int64_t>& masked_offsets, size_t k) {
  const ScoredVectors vectors = VectorsOf(users, items, bias);
  const ItemLists left_out = ListsOf(masked, masked_offsets, vectors, "masked");
  const std::vector<py::ssize_t> shape = {users.shape(0), static_cast<py::ssize_t>(k)};
  Array<int64_t> found(shape);
  Array<float> scores(shape);
  int64_t* to = found.mutable_data();
  float* scores_to = scores.mutable_data();
  Natively([&] { TopItems(vectors, left_out, k, to, scores_to); });
  return py::make_tuple(found, scores);
}

}  // namespace

void BindRanking(py::module_* module) {
  module->def("rank_targets", &RanksOfTargets, py::arg("users"), py::arg("items"), py::arg("bias"),
              py::arg("target"), py::arg("target_offsets"), py::arg("masked"),
              py::arg("masked_offsets"));
  module->def("top_items", &BestItems, py::arg("users"), py::arg("items"), py::arg("bias"),
              py::arg("masked"), py::arg("masked_offsets"), py::arg("k"));
}

}  // namespace msrec
