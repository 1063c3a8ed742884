// SPDX-License-Identifier: Apache-2.0
//
// The exceptions of a table's calls.
#pragma once

#include <stdexcept>

namespace msrec {

struct TableClosed : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Something other than the table has changed a row in a tier.
struct RowDamaged : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct NoOptimizer : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct StaleHandle : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

}  // namespace msrec
