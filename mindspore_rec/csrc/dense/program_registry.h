// SPDX-License-Identifier: Apache-2.0
//
// The programs of the process by number: an operator names its program by an int64 tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "dense/program.h"

namespace msrec {

// Registers a program; the number is never used again.
int64_t RegisterProgram(std::shared_ptr<const DenseProgram> program);

void UnregisterProgram(int64_t id);
// Unregisters a program once `kRetired` others have been retired after it: in PyNative a cell's
// operators run behind the program that called it, which may have dropped the cell. Memory of a
// device that nothing waits for is given back at once.
void RetireProgram(int64_t id);
constexpr size_t kRetired = 256;

// Throws std::runtime_error where there is no such program.
std::shared_ptr<const DenseProgram> FindProgram(int64_t id);

}  // namespace msrec
