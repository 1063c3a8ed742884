// SPDX-License-Identifier: Apache-2.0
//
// The programs of the process by number: an operator names its program by an int64 tensor.
#pragma once

#include <cstdint>
#include <memory>

#include "dense/program.h"

namespace msrec {

// Registers a program; the number is never used again.
int64_t RegisterProgram(std::shared_ptr<const DenseProgram> program);
void UnregisterProgram(int64_t id);

// Throws std::runtime_error where there is no such program.
std::shared_ptr<const DenseProgram> FindProgram(int64_t id);

}  // namespace msrec
