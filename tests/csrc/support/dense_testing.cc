// SPDX-License-Identifier: Apache-2.0
#include "dense_testing.h"

#include <glob.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "testing.h"

namespace msrec {
namespace {

constexpr uint32_t kPoison = 0x7fc0dead;  // a NaN

std::string OneDnnPath() {
  for (const char* variable : {"MSREC_TEST_ONEDNN", "MINDSPORE_REC_ONEDNN"}) {
    const char* path = std::getenv(variable);
    if (path != nullptr && *path != '\0') return path;
  }
  glob_t found;
  std::string path;
  if (glob(".venv/lib/python3*/site-packages/mindspore/lib/libdnnl.so.3", 0, nullptr, &found) == 0)
    path = found.gl_pathv[0];
  globfree(&found);
  return path;
}

bool MayBeMissing() {
  const char* all = std::getenv("MINDSPORE_REC_REQUIRE_ALL");
  return all == nullptr || std::strcmp(all, "1") != 0;
}

std::vector<std::vector<float>> ValuesOf(const std::vector<Poisoned>& memory) {
  std::vector<std::vector<float>> values;
  for (const Poisoned& part : memory) {
    EXPECT_TRUE(part.GuardsAreWhole());
    values.push_back(part.Values());
  }
  return values;
}

template <typename T>
std::vector<T*> Pointers(std::vector<Poisoned>* memory) {
  std::vector<T*> pointers;
  for (Poisoned& part : *memory) pointers.push_back(part.data());
  return pointers;
}

// Copies of what a pass reads: it must not read beyond them, nor change them.
std::vector<Poisoned> Copies(const std::vector<std::vector<float>>& given) {
  std::vector<Poisoned> copies;
  for (const auto& values : given) {
    copies.emplace_back(static_cast<int64_t>(values.size()));
    if (!values.empty()) {
      std::memcpy(copies.back().data(), values.data(), values.size() * sizeof(float));
    }
  }
  return copies;
}

bool SameAll(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!SameBits(a[i], b[i])) return false;
  }
  return true;
}

}  // namespace

std::string OpenOneDnn() {
  static const std::string problem = [] {
    const std::string path = OneDnnPath();
    return path.empty() ? "no libdnnl.so.3; name it by MSREC_TEST_ONEDNN" : OneDnn::Load(path);
  }();
  return problem;
}

void OneDnnTest::SetUp() {
  const std::string problem = OpenOneDnn();
  if (problem.empty()) return;
  if (!MayBeMissing()) FAIL() << "MINDSPORE_REC_REQUIRE_ALL asks for oneDNN: " << problem;
  GTEST_SKIP() << "oneDNN is missing: " << problem;
}

void Poisoned::Free::operator()(float* p) const { std::free(p); }

Poisoned::Poisoned(int64_t n) : size_(n) {
  const int64_t floats = (n + 2 * kGuard + 15) / 16 * 16;
  void* memory = std::aligned_alloc(64, sizeof(float) * static_cast<size_t>(floats));
  if (memory == nullptr) throw std::bad_alloc();
  memory_.reset(static_cast<float*>(memory));
  for (int64_t i = 0; i < floats; ++i) std::memcpy(memory_.get() + i, &kPoison, sizeof(kPoison));
}

bool Poisoned::GuardsAreWhole() const {
  for (int64_t i = 0; i < kGuard; ++i) {
    if (std::memcmp(memory_.get() + i, &kPoison, sizeof(kPoison)) != 0) return false;
    if (std::memcmp(data() + size_ + i, &kPoison, sizeof(kPoison)) != 0) return false;
  }
  return true;
}

Results RunProgram(const DenseProgram& program, const Tensors& given, bool training) {
  const int64_t rows = SliceRows(given.batch);
  const int64_t padded = (given.batch + rows - 1) / rows * rows;
  Results results;
  BatchRun run;
  run.batch = given.batch;
  run.training = training;
  run.extras = given.extras;
  auto inputs = Copies(given.inputs);
  auto parameters = Copies(given.parameters);
  run.parameters = Pointers<const float>(&parameters);
  Poisoned saved(training ? padded * program.saved_width() : 0);
  Poisoned packed(program.packed_bytes() / 4);
  if (training) run.saved = saved.data();
  run.packed = reinterpret_cast<char*>(packed.data());
  std::vector<Poisoned> outputs;
  for (int i = 0; i < program.outputs(); ++i) {
    outputs.emplace_back(given.batch * program.output_width(i));
  }
  program.Forward(&run, Pointers<const float>(&inputs), Pointers<float>(&outputs));
  results.outputs = ValuesOf(outputs);
  EXPECT_TRUE(saved.GuardsAreWhole() && packed.GuardsAreWhole());
  EXPECT_TRUE(SameAll(ValuesOf(inputs), given.inputs));
  EXPECT_TRUE(SameAll(ValuesOf(parameters), given.parameters));
  if (!training) return results;

  // The operators hand `saved` and `packed` on, and nothing else.
  BatchRun back;
  back.batch = given.batch;
  back.extras = given.extras;
  back.parameters = run.parameters;
  back.saved = run.saved;
  back.packed = run.packed;
  Poisoned gradients(padded * program.gradient_width());
  back.gradients = gradients.data();
  std::vector<Poisoned> input_gradients, parameter_gradients;
  for (const auto& input : given.inputs) {
    input_gradients.emplace_back(static_cast<int64_t>(input.size()));
  }
  for (const auto& parameter : given.parameters) {
    parameter_gradients.emplace_back(static_cast<int64_t>(parameter.size()));
  }
  auto output_gradients = Copies(given.output_gradients);
  back.parameter_gradients = Pointers<float>(&parameter_gradients);
  program.Backward(&back, Pointers<const float>(&output_gradients),
                   Pointers<float>(&input_gradients));
  results.input_gradients = ValuesOf(input_gradients);
  results.parameter_gradients = ValuesOf(parameter_gradients);
  EXPECT_TRUE(saved.GuardsAreWhole() && packed.GuardsAreWhole() && gradients.GuardsAreWhole());
  EXPECT_TRUE(SameAll(ValuesOf(output_gradients), given.output_gradients));
  return results;
}

bool SameResults(const Results& a, const Results& b) {
  return SameAll(a.outputs, b.outputs) && SameAll(a.input_gradients, b.input_gradients) &&
         SameAll(a.parameter_gradients, b.parameter_gradients);
}

}  // namespace msrec
