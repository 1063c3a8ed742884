// SPDX-License-Identifier: Apache-2.0
#include "bindings/dense.h"

#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "cuda/cuda_device.h"
#include "cuda/kernel_module.h"
#include "dense/batch_norm.h"
#include "dense/cross_layers.h"
#include "dense/dense_device.h"
#include "dense/linear.h"
#include "dense/mixture_layer.h"
#include "dense/number_layers.h"
#include "dense/pair_layers.h"
#include "dense/program.h"
#include "dense/program_registry.h"
#include "dense/row_layers.h"
#include "dense/scale_groups.h"
#include "dense/softmax_layer.h"

namespace py = pybind11;

namespace msrec {
namespace {

using ViewTuple = std::tuple<int, int64_t, int64_t>;  // value, offset, width
using PartTuple = std::tuple<int, int64_t>;           // parameter, offset
using MaskTuple = std::tuple<int, int, int64_t>;  // numbers of the extra inputs `masks` and `used`,
                                                  // and the number of masks

View ToView(const ViewTuple& view) {
  return {std::get<0>(view), std::get<1>(view), std::get<2>(view)};
}

RowMasks ToMasks(const MaskTuple& masks) {
  return {std::get<0>(masks), std::get<1>(masks), std::get<2>(masks)};
}

Activation ToActivation(const std::string& name) {
  const char* const names[] = {"none", "relu", "leakyrelu", "gelu", "tanh", "sigmoid"};
  for (int i = 0; i < 6; ++i) {
    if (name == names[i]) return static_cast<Activation>(i);
  }
  throw py::value_error("activation must be one of none, relu, leakyrelu, gelu, tanh, sigmoid");
}

Precision ToPrecision(const std::string& name) {
  if (name == "float32") return Precision::kFloat32;
  // Tests use bfloat16_in_float32 to test the arithmetic of processors without bfloat16.
  if (name == "bfloat16_in_float32") return Precision::kRoundedFloat32;
  if (name != "bfloat16") throw py::value_error("compute_dtype must be float32 or bfloat16");
  if (ActiveDenseDevice() != nullptr) return Precision::kBFloat16;
  return OneDnn::has_bfloat16() ? Precision::kBFloat16 : Precision::kRoundedFloat32;
}

// A dense program under construction. A finished program is registered under a number.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(const std::string& compute_dtype)
      : program_(std::make_shared<DenseProgram>(ToPrecision(compute_dtype))) {}
  ~ProgramBuilder() {
    if (id_ != 0) RetireProgram(id_);
  }
  ProgramBuilder(const ProgramBuilder&) = delete;
  ProgramBuilder& operator=(const ProgramBuilder&) = delete;

  DenseProgram& program() {
    if (id_ != 0) throw py::value_error("the program is finished");
    return *program_;
  }
  const DenseProgram& finished() const { return *program_; }
  int64_t Finish(int parameters, int extras) {
    program().Finish(parameters, extras);
    id_ = RegisterProgram(program_);
    return id_;
  }

 private:
  std::shared_ptr<DenseProgram> program_;
  int64_t id_ = 0;
};

void AddLinear(ProgramBuilder& builder, const ViewTuple& input, const ViewTuple& output,
               const PartTuple& weight, bool input_major, const PartTuple& bias,
               const std::string& activation, const MaskTuple& masks) {
  builder.program().AddLayer(std::make_unique<Linear>(
      ToView(input), ToView(output), Weight{std::get<0>(weight), std::get<1>(weight), input_major},
      Bias{std::get<0>(bias), std::get<1>(bias)}, ToActivation(activation), ToMasks(masks)));
}

int64_t AddBatchNormOf(ProgramBuilder& builder, const ViewTuple& input, const ViewTuple& output,
                       const std::tuple<int, int>& learned, const std::tuple<int, int>& moving,
                       const std::string& activation, const MaskTuple& masks, float epsilon,
                       float momentum, bool training) {
  BatchNorm norm;
  norm.input = ToView(input);
  norm.output = ToView(output);
  std::tie(norm.gamma, norm.beta) = learned;
  std::tie(norm.mean, norm.variance) = moving;
  norm.activation = ToActivation(activation);
  norm.masks = ToMasks(masks);
  norm.epsilon = epsilon;
  norm.momentum = momentum;
  return AddBatchNorm(norm, training, &builder.program());
}

// Opens a GPU once for the process. The device object is never destroyed.
void OpenCuda(int ordinal, const std::map<std::string, std::string>& libraries,
              const std::string& cache_directory) {
  static std::mutex mutex;
  static auto* opened = new std::map<int, std::shared_ptr<DenseDevice>>;
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<DenseDevice>& device = (*opened)[ordinal];
  if (device == nullptr) {
    device = std::make_shared<cuda::CudaDevice>(
        ordinal, cuda::Libraries{libraries.at("nvrtc"), libraries.at("cublasLt")}, cache_directory);
  }
  SetDenseDevice(device);
}

std::string DenseDeviceName() {
  const auto device = ActiveDenseDevice();
  return device == nullptr ? "cpu" : device->name();
}

std::string DenseDeviceDescription() {
  const auto device = ActiveDenseDevice();
  return device == nullptr ? "" : device->description();
}

}  // namespace

void BindDense(py::module_& m) {
  m.def("load_onednn", &OneDnn::Load, py::arg("path"));
  m.def("onednn_version", &OneDnn::version);
  m.def("onednn_has_bfloat16", &OneDnn::has_bfloat16);
  m.def("open_cuda", &OpenCuda, py::arg("ordinal"), py::arg("libraries"), py::arg("cache_dir"),
        py::call_guard<py::gil_scoped_release>());
  m.def("close_dense_device", [] { SetDenseDevice(nullptr); });
  m.def("dense_device", &DenseDeviceName);
  m.def("dense_device_description", &DenseDeviceDescription);
  m.def("cuda_kernel_sources", &cuda::KernelSources);

  py::class_<ProgramBuilder>(m, "DenseProgram")
      .def(py::init<const std::string&>(), py::arg("compute_dtype"))
      .def("add_value",
           [](ProgramBuilder& b, int64_t width) { return b.program().AddValue(width); })
      .def("add_input",
           [](ProgramBuilder& b, const ViewTuple& view) { b.program().AddInput(ToView(view)); })
      .def("add_output",
           [](ProgramBuilder& b, const ViewTuple& view) { b.program().AddOutput(ToView(view)); })
      .def("add_linear", &AddLinear)
      .def("add_gelu",
           [](ProgramBuilder& b, const ViewTuple& x, const ViewTuple& y) {
             b.program().AddLayer(std::make_unique<Gelu>(ToView(x), ToView(y)));
           })
      .def("add_dropout",
           [](ProgramBuilder& b, const ViewTuple& x, const ViewTuple& y, int masks, int used,
              int64_t mask_count) {
             b.program().AddLayer(
                 std::make_unique<Dropout>(ToView(x), ToView(y), masks, used, mask_count));
           })
      .def("add_batch_norm", &AddBatchNormOf)
      .def("add_softmax",
           [](ProgramBuilder& b, const ViewTuple& x, const ViewTuple& y, int64_t group) {
             b.program().AddLayer(std::make_unique<Softmax>(ToView(x), ToView(y), group));
           })
      .def("add_sum_groups",
           [](ProgramBuilder& b, const ViewTuple& x, const ViewTuple& y) {
             b.program().AddLayer(std::make_unique<SumGroups>(ToView(x), ToView(y)));
           })
      .def("add_pairwise_dots",
           [](ProgramBuilder& b, const ViewTuple& x, const ViewTuple& y, int64_t vectors,
              bool diagonal, bool keeps_first) {
             b.program().AddLayer(std::make_unique<PairwiseDots>(ToView(x), ToView(y), vectors,
                                                                 diagonal, keeps_first));
           })
      .def(
          "add_factorized_pairs",
          [](ProgramBuilder& b, const ViewTuple& x, const ViewTuple& y, int64_t fields, bool sums) {
            b.program().AddLayer(
                std::make_unique<FactorizedPairs>(ToView(x), ToView(y), fields, sums));
          })
      .def("add_mixture",
           [](ProgramBuilder& b, const ViewTuple& units, const ViewTuple& gates, const ViewTuple& y,
              int64_t experts, int64_t tasks) {
             b.program().AddLayer(std::make_unique<Mixture>(ToView(units), ToView(gates), ToView(y),
                                                            experts, tasks));
           })
      .def("add_scale_groups",
           [](ProgramBuilder& b, const ViewTuple& x, const ViewTuple& scales, const ViewTuple& y) {
             b.program().AddLayer(
                 std::make_unique<ScaleGroups>(ToView(x), ToView(scales), ToView(y)));
           })
      .def("add_scale_vectors",
           [](ProgramBuilder& b, const ViewTuple& x, const ViewTuple& y, int vectors) {
             b.program().AddLayer(std::make_unique<ScaleVectors>(ToView(x), ToView(y), vectors));
           })
      .def("add_curves",
           [](ProgramBuilder& b, const ViewTuple& x, const ViewTuple& y, int64_t bins, int knots) {
             b.program().AddLayer(
                 std::make_unique<CurvesOfNumbers>(ToView(x), ToView(y), bins, knots));
           })
      .def("add_waves",
           [](ProgramBuilder& b, const ViewTuple& x, const ViewTuple& y, int64_t count,
              const std::tuple<int, int, int>& parameters) {
             const auto& [frequencies, weight, bias] = parameters;
             b.program().AddLayer(std::make_unique<WavesOfNumbers>(
                 ToView(x), ToView(y), count, WaveParameters{frequencies, weight, bias}));
           })
      .def("add_cross_combine",
           [](ProgramBuilder& b, const ViewTuple& x0, const ViewTuple& t, const ViewTuple& x,
              const ViewTuple& y) {
             b.program().AddLayer(
                 std::make_unique<CrossCombine>(ToView(x0), ToView(t), ToView(x), ToView(y)));
           })
      .def("add_cross_vectors",
           [](ProgramBuilder& b, const ViewTuple& x, const ViewTuple& y, const ViewTuple& products,
              int weight, int bias) {
             b.program().AddLayer(std::make_unique<CrossVectors>(ToView(x), ToView(y),
                                                                 ToView(products), weight, bias));
           })
      .def("end_stage", [](ProgramBuilder& b) { b.program().EndStage(); })
      .def("finish", &ProgramBuilder::Finish, py::arg("parameters"), py::arg("extras"))
      .def_property_readonly("saved_width",
                             [](const ProgramBuilder& b) { return b.finished().saved_width(); })
      .def_property_readonly("gradient_width",
                             [](const ProgramBuilder& b) { return b.finished().gradient_width(); })
      .def_property_readonly("packed_bytes",
                             [](const ProgramBuilder& b) { return b.finished().packed_bytes(); });
}

}  // namespace msrec
