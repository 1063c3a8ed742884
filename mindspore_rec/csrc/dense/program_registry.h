// SPDX-License-Identifier: Apache-2.0
//
// A map from numbers to the dense programs of this process. An int64 tensor passes the number of a
// program to an operator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "dense/program.h"

namespace msrec {

// Registers a program and returns its number, which is never reused.
int64_t RegisterProgram(std::shared_ptr<const DenseProgram> program);

void UnregisterProgram(int64_t id);
// Retires a program. The program is unregistered after `kRetired` more programs have been retired.
// The delay is necessary because, in PyNative mode, a cell's operators may still run after Python
// has freed the cell. Device memory that no backward pass needs is freed at once.
void RetireProgram(int64_t id);
constexpr size_t kRetired = 256;

// Throws std::runtime_error if there is no program with number `id`.
std::shared_ptr<const DenseProgram> FindProgram(int64_t id);

}  // namespace msrec
