// SPDX-License-Identifier: Apache-2.0
#include "dense/program_registry.h"

#include <gtest/gtest.h>

#include <memory>

namespace msrec {
namespace {

int64_t Register() { return RegisterProgram(std::make_shared<DenseProgram>(Precision::kFloat32)); }

TEST(ProgramRegistry, ARetiredProgramIsThereForOperatorsThatAreStillToRun) {
  const int64_t first = Register();
  RetireProgram(first);
  EXPECT_NE(FindProgram(first), nullptr);
  for (size_t i = 0; i < kRetired; ++i) RetireProgram(Register());
  EXPECT_THROW(FindProgram(first), std::runtime_error);
}

TEST(ProgramRegistry, NumbersAreNotUsedAgain) {
  const int64_t first = Register();
  UnregisterProgram(first);
  const int64_t second = Register();
  EXPECT_GT(second, first);
  EXPECT_THROW(FindProgram(first), std::runtime_error);
  UnregisterProgram(second);
}

TEST(ProgramRegistry, AnUnknownNumberIsAnError) {
  EXPECT_THROW(FindProgram(0), std::runtime_error);
}

}  // namespace
}  // namespace msrec
