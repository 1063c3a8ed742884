// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace msrec {

// Lives through some steps of tables with every rule and initializer on the active kernels, and
// gives a digest of all bits that came out.
std::string TableDigest();

}  // namespace msrec
