// SPDX-License-Identifier: Apache-2.0
//
// The programs of the process by number. An operator gets the number of its program in an int64
// tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "dense/program.h"

namespace msrec {

// Registers a program and returns its number, which is never reused.
int64_t RegisterProgram(std::shared_ptr<const DenseProgram> program);

void UnregisterProgram(int64_t id);
// Unregisters a program after `kRetired` other programs have been retired. In PyNative mode a
// cell's operators run later than the Python code, which may have dropped the cell by then. Device
// memory that no backward pass waits for is freed at once.
void RetireProgram(int64_t id);
constexpr size_t kRetired = 256;

// Throws std::runtime_error if there is no program with that number.
std::shared_ptr<const DenseProgram> FindProgram(int64_t id);

}  // namespace msrec
