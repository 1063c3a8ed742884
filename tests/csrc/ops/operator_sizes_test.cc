// SPDX-License-Identifier: Apache-2.0
//
// Operators are given memory of which MindSpore, or Python, has inferred the size. Each argument of
// each operator in turn is made an element shorter, an element longer and of another dtype: the
// operator must say so, and touch nothing. Memory is as large as its shape says, so that a
// sanitizer sees what is read or written beyond.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dense/program.h"
#include "dense/program_registry.h"
#include "dense/row_layers.h"
#include "ops/args.h"
#include "table_state.h"
#include "table_testing.h"
#include "testing.h"
#include "workers/registry.h"

// clang-format off
#define OPERATORS(X)                                                   \
  X(MsrLookupTrain) X(MsrLookupEval) X(MsrRefuseGradient)              \
  X(MsrAccumulate) X(MsrPoolTrain) X(MsrPoolEval)                      \
  X(MsrMapGet) X(MsrFind) X(MsrPut)                                    \
  X(MsrErase) X(MsrContains) X(MsrSize)                                \
  X(MsrKeys) X(MsrValues) X(MsrGradNorm)                               \
  X(MsrStep) X(MsrGroupLookupTrain) X(MsrGroupLookupEval)              \
  X(MsrGroupAccumulate) X(MsrLookupSlots) X(MsrReportGradient)         \
  X(MsrCountTouched) X(MsrTouched) X(MsrBeginDeviceStep)               \
  X(MsrFinishDeviceStep) X(MsrLogisticLoss) X(MsrLogisticLossGradient) \
  X(MsrDenseStep) X(MsrDenseGradNorm) X(MsrDenseForward)               \
  X(MsrDensePredict) X(MsrDenseBackward) X(MsrExchangeGradients)       \
  X(MsrAverageGradients) X(MsrCompareParameters)                       \
  X(MsrMemberRows) X(MsrMemberRowsGradient)                            \
  X(MsrJoinColumnsGradient)
// clang-format on

#define DECLARE(name) extern "C" int name(int, void**, int*, int64_t**, const char**, void*, void*);
OPERATORS(DECLARE)
#undef DECLARE

namespace msrec {
namespace {

using Operator = int (*)(int, void**, int*, int64_t**, const char**, void*, void*);

#define ENTRY(name) {#name, name},
const std::map<std::string, Operator>& Operators() {
  static const std::map<std::string, Operator> operators = {OPERATORS(ENTRY)};
  return operators;
}
#undef ENTRY

// Properties of an argument that an operator checks.
enum class Use {
  kExact,    // its size and its dtype
  kAnySize,  // any size will do, or any from one on
  kAnyType,  // its shape alone is read
  kUnread,
};

struct Argument {
  std::string dtype;
  Shape shape;
  std::vector<char> bytes;
  Use use = Use::kExact;
  bool output = false;
};

size_t WidthOf(const std::string& dtype) {
  return dtype == "int64" ? 8 : dtype == "int8" || dtype == "bool" || dtype == "uint8" ? 1 : 4;
}

int64_t Elements(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

template <typename T>
Argument In(const std::vector<T>& values, Shape shape, Use use = Use::kExact) {
  Argument argument{kTypeName<T>, std::move(shape), {}, use, false};
  argument.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(argument.bytes.data(), values.data(), argument.bytes.size());
  return argument;
}
template <typename T>
Argument In(const std::vector<T>& values, Use use = Use::kExact) {
  return In(values, {static_cast<int64_t>(values.size())}, use);
}

Argument Out(const std::string& dtype, Shape shape, Use use = Use::kExact) {
  Argument argument{dtype, std::move(shape), {}, use, true};
  argument.bytes.assign(static_cast<size_t>(Elements(argument.shape)) * WidthOf(dtype), 0x5a);
  return argument;
}

// A constant whose length is a width.
Argument Width(int64_t width) {
  return {"int8", {width}, std::vector<char>(static_cast<size_t>(width)), Use::kUnread, false};
}

using Arguments = std::vector<Argument>;

// Return the message of what an operator throws; "" for nothing.
std::string MessageOf(const std::string& name, Arguments* arguments) {
  std::vector<void*> params;
  std::vector<int> ndims;
  std::vector<int64_t*> shapes;
  std::vector<const char*> dtypes;
  for (Argument& each : *arguments) {
    params.push_back(each.bytes.data());
    ndims.push_back(static_cast<int>(each.shape.size()));
    shapes.push_back(each.shape.data());
    dtypes.push_back(each.dtype.c_str());
  }
  try {
    Operators().at(name)(static_cast<int>(arguments->size()), params.data(), ndims.data(),
                         shapes.data(), dtypes.data(), nullptr, nullptr);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Expect that a call is refused, and writes nothing.
std::string Refused(const std::string& name, Arguments arguments, const std::string& how) {
  const Arguments before = arguments;
  const std::string said = MessageOf(name, &arguments);
  EXPECT_NE(said, "") << name << " with " << how;
  for (size_t i = 0; i < arguments.size(); ++i) {
    EXPECT_TRUE(arguments[i].bytes == before[i].bytes)
        << name << " with " << how << " has written argument " << i;
  }
  return said;
}

void Resize(Argument* argument, int64_t elements) {
  argument->shape = {elements};
  argument->bytes.resize(static_cast<size_t>(elements) * WidthOf(argument->dtype));
  argument->bytes.shrink_to_fit();
}

// Call an operator with each argument made wrong in turn; then as it should be, where it `runs`.
void ExpectChecks(const std::string& name, const Arguments& right, bool runs = true) {
  for (size_t i = 0; i < right.size(); ++i) {
    const Argument& argument = right[i];
    const std::string which = "argument " + std::to_string(i);
    const int64_t n = Elements(argument.shape);
    if (argument.use == Use::kExact || argument.use == Use::kAnyType) {
      for (const int64_t elements : {n - 1, n + 1, 2 * n + 3}) {
        Arguments wrong = right;
        Resize(&wrong[i], elements);
        const std::string said =
            Refused(name, wrong, which + " of " + std::to_string(elements) + " elements");
        if (!argument.output) continue;
        EXPECT_NE(said.find(name), std::string::npos) << said;
        EXPECT_NE(said.find("must have "), std::string::npos) << said;
        EXPECT_NE(said.find(std::to_string(n) + " elements of " + argument.dtype + ", got [" +
                            std::to_string(elements) + "]"),
                  std::string::npos)
            << said;
      }
    }
    if (argument.use == Use::kExact || argument.use == Use::kAnySize) {
      Arguments wrong = right;
      wrong[i].dtype = "float16";
      wrong[i].bytes.resize(static_cast<size_t>(n) * 2);
      wrong[i].bytes.shrink_to_fit();
      Refused(name, wrong, which + " of float16");
    }
  }
  for (const size_t n : {size_t{0}, right.size() - 1}) {
    Arguments fewer(right.begin(), right.begin() + static_cast<int64_t>(n));
    const std::string said = Refused(name, fewer, std::to_string(n) + " arguments");
  }
  if (!runs) return;
  Arguments arguments = right;
  EXPECT_EQ(MessageOf(name, &arguments), "") << name;
}

constexpr int64_t kDim = 3;

class OperatorSizesTest : public ::testing::Test {
 protected:
  OperatorSizesTest() {
    for (const char* name : {"sizes", "sizes_too"}) {
      tables_.push_back(CreateTable(NormalConfig(name, kDim)));
      bindings_.push_back(table(tables_.size() - 1).BindOptimizer(RuleOf(RuleKind::kSgd)));
    }
  }
  ~OperatorSizesTest() override {
    for (const auto& each : tables_) CloseTable(each->id);
  }

  Table& table(size_t i = 0) const { return *tables_[i]->table; }
  std::vector<int64_t> Numbers(size_t i = 0, bool weighted = false) const {
    return {tables_[i]->id, 0, 0, 0, weighted ? 1 : 0, 0, 1};
  }
  Argument Descriptor(bool weighted = false) const { return In(Numbers(0, weighted)); }
  Argument Descriptors() const {
    std::vector<int64_t> both = Numbers(0);
    for (const int64_t number : Numbers(1)) both.push_back(number);
    return In(both, {2, 7});
  }
  static Argument Ids() { return In<int64_t>({1, 2, 3, 4}, {2, 2}); }
  static Argument Like() { return In<float>({0, 0, 0}, Use::kUnread); }
  static Argument Anchor() { return In<float>({0}, Use::kUnread); }
  static Argument Token() { return Anchor(); }
  static Argument Rows() { return Out("float32", {2, 2, kDim}); }
  static Argument Ticket() { return Out("int64", {1}); }
  static Argument Done() { return Out("float32", {1}); }
  int64_t LookUp(size_t i = 0) const {
    const std::vector<int64_t> ids = {1, 2, 3, 4};
    std::vector<float> out(ids.size() * kDim);
    return table(i).LookupTrain(View(ids), {}, out.data());
  }
  Arguments StepArguments(Argument output) const {
    return {Token(),        Descriptor(),     In<float>({0.1f}),           In<float>({0}),
            In<float>({1}), In<int32_t>({1}), In<int64_t>({bindings_[0]}), std::move(output)};
  }

  std::vector<std::shared_ptr<Registered>> tables_;
  std::vector<int64_t> bindings_;
};

TEST_F(OperatorSizesTest, Lookups) {
  const Arguments lookup = {Ids(), Descriptor(), Like(), Anchor(), Rows()};
  Arguments trained = lookup;
  trained.push_back(Ticket());
  for (const char* name : {"MsrLookupTrain", "MsrMapGet"}) {
    const size_t before = table().Size();
    ExpectChecks(name, trained, false);
    EXPECT_EQ(table().Size(), before) << name;
    ExpectChecks(name, trained);
  }
  ExpectChecks("MsrLookupEval", lookup);
  ExpectChecks("MsrFind", {Ids(), Descriptor(), Like(), Rows()});
  const std::vector<float> gradient(4 * kDim, 1.0f);
  ExpectChecks("MsrAccumulate",
               {In(gradient, {2, 2, kDim}), In<int64_t>({LookUp()}), Descriptor(), Done()});
  ExpectChecks("MsrRefuseGradient", {Token(), Descriptor(), Out("float32", {1}, Use::kUnread)},
               false);
}

TEST_F(OperatorSizesTest, Bags) {
  const Argument flat = In<int64_t>({1, 2, 3, 4});
  const Argument offsets = In<int64_t>({0, 1, 3}), weights = In<float>({1, 2, 3, 4});
  const Argument bags = Out("float32", {3, kDim});
  const Arguments pooled = {flat, offsets, weights, Descriptor(true), Like(), Anchor(), bags};
  ExpectChecks("MsrPoolEval", pooled);
  Arguments trained = pooled;
  trained.push_back(Ticket());
  ExpectChecks("MsrPoolTrain", trained);
  // A row of two dimensions is a bag.
  Argument unread = offsets, no_weights = weights;
  unread.use = no_weights.use = Use::kUnread;
  ExpectChecks("MsrPoolEval", {Ids(), unread, no_weights, Descriptor(), Like(), Anchor(),
                               Out("float32", {2, kDim})});
}

TEST_F(OperatorSizesTest, RowsByKey) {
  LookUp();
  const std::vector<float> values(4 * kDim, 1.0f);
  ExpectChecks("MsrPut", {Ids(), In(values, {2, 2, kDim}), Descriptor(), Out("int32", {1})});
  ExpectChecks("MsrContains", {Ids(), Descriptor(), Out("bool", {2, 2})});
  ExpectChecks("MsrSize", {Descriptor(), Out("int64", {1})});
  const Argument a_row_each = In<float>({0, 0, 0, 0}, Use::kAnyType);
  ExpectChecks("MsrKeys", {a_row_each, Descriptor(), Out("int64", {4})});
  ExpectChecks("MsrValues", {a_row_each, Descriptor(), Like(), Out("float32", {4, kDim})});
  Argument any = Ids();
  any.use = Use::kAnySize;
  ExpectChecks("MsrErase", {any, Descriptor(), Out("int32", {1})});
}

TEST_F(OperatorSizesTest, Steps) {
  ExpectChecks("MsrGradNorm", {Token(), Descriptor(), Done()});
  ExpectChecks("MsrStep", StepArguments(Done()));
}

TEST_F(OperatorSizesTest, Groups) {
  const Arguments lookup = {Ids(), Descriptors(), Like(), Anchor(), Rows()};
  Arguments trained = lookup;
  trained.push_back(Out("int64", {2}));
  ExpectChecks("MsrGroupLookupTrain", trained, false);
  EXPECT_EQ(table(0).Size() + table(1).Size(), 0u);
  ExpectChecks("MsrGroupLookupTrain", trained);
  ExpectChecks("MsrGroupLookupEval", lookup);
  Arguments run = trained;
  ASSERT_EQ(MessageOf("MsrGroupLookupTrain", &run), "");
  Argument tickets = run.back();
  tickets.output = false;
  const std::vector<float> gradient(4 * kDim, 1.0f);
  ExpectChecks("MsrGroupAccumulate", {In(gradient, {2, 2, kDim}), tickets, Descriptors(), Done()});
}

// Each id in turn is one that a table of the call does not take: no table has changed then.
TEST_F(OperatorSizesTest, AnIdThatIsRefusedChangesNoTable) {
  TableConfig config = NormalConfig("sizes_bounded", kDim);
  config.vocabulary = 10;
  const auto bounded = CreateTable(config);
  bounded->table->BindOptimizer(RuleOf(RuleKind::kSgd));
  const std::vector<int64_t> free = Numbers(0);
  std::vector<int64_t> fixed = free;
  fixed[0] = bounded->id;
  const auto of_group = [](std::vector<int64_t> first, const std::vector<int64_t>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return In(first, {2, 7});
  };
  const std::vector<float> values(4 * kDim, 1.0f);
  const Argument unread = In<float>({0, 0, 0, 0}, Use::kUnread);
  const std::vector<std::pair<std::string, Arguments>> calls = {
      {"MsrLookupTrain", {Ids(), In(fixed), Like(), Anchor(), Rows(), Ticket()}},
      {"MsrMapGet", {Ids(), In(fixed), Like(), Anchor(), Rows(), Ticket()}},
      {"MsrPoolTrain",
       {Ids(), unread, unread, In(fixed), Like(), Anchor(), Out("float32", {2, kDim}), Ticket()}},
      {"MsrPut", {Ids(), In(values, {2, 2, kDim}), In(fixed), Out("int32", {1})}},
      {"MsrGroupLookupTrain",
       {Ids(), of_group(free, fixed), Like(), Anchor(), Rows(), Out("int64", {2})}},
      {"MsrGroupLookupTrain",
       {Ids(), of_group(fixed, free), Like(), Anchor(), Rows(), Out("int64", {2})}}};
  int refused = 0;
  for (const auto& [name, right] : calls) {
    for (size_t at = 0; at < 4; ++at) {
      Arguments wrong = right;
      const int64_t outside = 10 + static_cast<int64_t>(at);
      std::memcpy(wrong[0].bytes.data() + at * sizeof outside, &outside, sizeof outside);
      std::string unread_well;
      const TableState before = TableState::Of(&table(), &unread_well);
      const TableState of_bounded = TableState::Of(bounded->table.get(), &unread_well);
      Arguments run = wrong;
      const bool goes_through = MessageOf(name, &run) == "";
      // The other column of a group takes any id.
      EXPECT_TRUE(!goes_through || name == "MsrGroupLookupTrain") << name;
      if (goes_through) continue;
      ++refused;
      EXPECT_EQ(TableState::Of(&table(), &unread_well).Difference(before), "") << name;
      EXPECT_EQ(TableState::Of(bounded->table.get(), &unread_well).Difference(of_bounded), "")
          << name;
      EXPECT_EQ(unread_well, "");
    }
  }
  EXPECT_EQ(refused, 4 * 4 + 2 * 2);
  CloseTable(bounded->id);
}

TEST_F(OperatorSizesTest, TablesOfAGroupHaveOneDim) {
  const auto wide = CreateTable(NormalConfig("sizes_wide", kDim + 1));
  std::vector<int64_t> both = Numbers(0);
  for (const int64_t number :
       {wide->id, int64_t{0}, int64_t{0}, int64_t{0}, int64_t{0}, int64_t{0}, int64_t{1}}) {
    both.push_back(number);
  }
  const std::string said = Refused("MsrGroupLookupEval",
                                   {Ids(), In(both, {2, 7}), Like(), Anchor(), Rows()}, "two dims");
  EXPECT_NE(said.find("must have 16 elements of float32"), std::string::npos) << said;
  CloseTable(wide->id);
}

TEST_F(OperatorSizesTest, DeviceCache) {
  CloseTable(tables_[0]->id);
  tables_[0] = CreateTable(NormalConfig("sizes_device", kDim));
  DeviceConfig config;
  config.rows = 8;
  std::vector<float> values((config.rows + 3) * kDim);
  table().device().Attach(config, values.data());
  ExpectChecks(
      "MsrLookupSlots",
      {Ids(), Descriptor(), Anchor(), In(values, Use::kAnySize), Out("int32", {2, 2}), Ticket()},
      false);
  ExpectChecks("MsrReportGradient", {In<int64_t>({1}), Descriptor(), Done()}, false);
  ExpectChecks("MsrCountTouched", {Token(), Descriptor(), Ticket()}, false);
  ExpectChecks("MsrTouched", {In<int64_t>({0, 0}, Use::kAnyType), Descriptor(), Out("int32", {2})},
               false);
  ExpectChecks("MsrBeginDeviceStep", StepArguments(Out("float32", {2})), false);
  ExpectChecks("MsrFinishDeviceStep", {Token(), Descriptor(), Done()}, false);
}

TEST_F(OperatorSizesTest, Losses) {
  const Argument logits = In<float>({1, 2, 3}), mean = In<int64_t>({1});
  const Argument gradients = Out("float32", {3});
  ExpectChecks("MsrLogisticLoss", {mean, logits, logits, Done(), gradients});
  ExpectChecks("MsrLogisticLossGradient",
               {mean, logits, logits, In<float>({1}), gradients, gradients});
}

TEST_F(OperatorSizesTest, RowsOfMembers) {
  const Argument rows = In(std::vector<float>(6), {2, 3});
  const Argument factors = In(std::vector<float>(12), {4, 3});
  const Argument repeated = In(std::vector<float>(24), {8, 3});
  ExpectChecks("MsrMemberRows", {rows, factors, Out("float32", {8, 3})});
  ExpectChecks("MsrMemberRowsGradient",
               {rows, factors, repeated, Out("float32", {2, 3}), Out("float32", {4, 3})});
}

TEST_F(OperatorSizesTest, JoinedColumns) {
  const Argument count = In<int64_t>({0, 0});
  const Argument wide = In(std::vector<float>(6), {3, 2}), narrow = In<float>({1, 2, 3}, {3, 1});
  const Argument joined = In(std::vector<float>(9), {3, 3});
  ExpectChecks("MsrJoinColumnsGradient",
               {count, wide, narrow, joined, Out("float32", {3, 2}), Out("float32", {3, 1})});
}

TEST_F(OperatorSizesTest, DenseSteps) {
  const Argument plan = In<int64_t>({static_cast<int64_t>(RuleKind::kSgd), 0, 0, 1, 2, 0, 1});
  const Argument constants = In<float>({0, 0, 0, 0, 0, 0, 0, 0});
  const Argument one = In<float>({1}), some = In<float>({1, 2, 3});
  ExpectChecks("MsrDenseStep",
               {plan, constants, one, In<int32_t>({1}), one, one, some, some, Done()});
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{0, 0, 0, 1, 2, 2, 1},
                                            {0, 0, 0, 1, 2, 0, 2},
                                            {0, 0, 0, 1, 2, -1, 1},
                                            {0, 0, 0, int64_t{1} << 62, 2, 0, 1},
                                            {0, 0, 0, 1, -1, 0, 1}}) {
    Refused("MsrDenseStep",
            {In(wrong), constants, one, In<int32_t>({1}), one, one, some, some, Done()}, "a plan");
  }
  Argument any = some;
  any.use = Use::kAnySize;
  ExpectChecks("MsrDenseGradNorm", {one, any, any, Done()});
}

TEST_F(OperatorSizesTest, DensePrograms) {
  constexpr int64_t kBatch = 5, kRows = 16, kWidth = 3, kUnit = 16, kPacked = 1024;
  auto program = std::make_shared<DenseProgram>(Precision::kFloat32);
  const int in = program->AddValue(kWidth), out = program->AddValue(kWidth);
  program->AddInput(program->Whole(in));
  program->AddLayer(std::make_unique<Gelu>(program->Whole(in), program->Whole(out)));
  program->AddOutput(program->Whole(out));
  program->Finish(0, 0);
  ASSERT_EQ(SliceRows(kBatch), kRows);
  const int64_t saved_units = (program->saved_width() + kUnit - 1) / kUnit;
  const int64_t gradient_units =
      std::max<int64_t>((program->gradient_width() + kUnit - 1) / kUnit, 1);
  const int64_t id = RegisterProgram(program);
  const Argument name = In<int64_t>({id}, Use::kUnread);
  const std::vector<float> numbers(kBatch * kWidth, 0.5f);
  const Argument input = In(numbers, {kBatch, kWidth});
  const Argument output = Out("float32", {kBatch, kWidth});
  // These are rounded up, and may be larger than the program needs.
  const Argument saved = Out("float32", {kRows, saved_units * kUnit}, Use::kAnySize);
  const Argument gradients = Out("float32", {kRows, gradient_units * kUnit}, Use::kAnySize);
  const Argument packed = Out("float32", {kPacked}, Use::kAnySize);

  const Arguments forward = {
      name, Width(saved_units), Width(1), Width(kWidth), input, output, saved, packed};
  ExpectChecks("MsrDenseForward", forward);
  ExpectChecks("MsrDensePredict", {name, Width(1), Width(kWidth), input, output, packed});
  Arguments run = forward;
  ASSERT_EQ(MessageOf("MsrDenseForward", &run), "");
  const Arguments backward = {name,     Width(gradient_units), input, run[6], run[7], input, output,
                              gradients};
  ExpectChecks("MsrDenseBackward", backward);
  ASSERT_GT(program->saved_width(), 0);
  for (const auto& [operator_name, right, i] :
       {std::tuple{"MsrDenseForward", forward, size_t{6}}, {"MsrDenseBackward", backward, 3}}) {
    Arguments wrong = right;
    Resize(&wrong[i], kRows * program->saved_width() - 1);
    EXPECT_NE(Refused(operator_name, wrong, "saved").find("saved must have at least "),
              std::string::npos);
  }
  UnregisterProgram(id);
}

// With one worker they only refuse; sizes come first.
TEST_F(OperatorSizesTest, Workers) {
  const std::string alone = "there is only one worker";
  const Argument some = In<float>({1, 2, 3});
  Argument averaged = Out("float32", {3});
  ExpectChecks("MsrExchangeGradients",
               {Descriptors(), In<int64_t>({0, 0}), Token(), Token(), Token(), Done()}, false);
  const Arguments average = {Token(), some, Done(), averaged};
  ExpectChecks(
      "MsrAverageGradients",
      {Token(), In<float>({1, 2, 3}, Use::kAnyType), Done(), Out("float32", {3}, Use::kAnySize)},
      false);
  Arguments wrong = average;
  Resize(&wrong[3], 2);
  EXPECT_EQ(Refused("MsrAverageGradients", wrong, "two sums").find(alone), std::string::npos);
  Argument names = In<uint8_t>({'w', '\n'}, Use::kAnySize);
  const Arguments compare = {Token(), In<int32_t>({100}), In<int32_t>({100}), names, some, Done()};
  Arguments every = compare;
  every[2] = In<int32_t>({0});
  EXPECT_NE(Refused("MsrCompareParameters", every, "every 0").find("every must be at least 1"),
            std::string::npos);
  for (const size_t i : {1, 2, 5}) {
    wrong = compare;
    Resize(&wrong[i], 0);
    EXPECT_NE(Refused("MsrCompareParameters", wrong, "a size").find("MsrCompareParameters: "),
              std::string::npos);
  }
}

}  // namespace
}  // namespace msrec
