// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace msrec {

// Lives through some steps of tables with every rule and initializer on the active kernels, and
// gives a digest of all bits that came out.
std::string TableDigest();

// Lives of tables and tiers that walk, sample and evict in every way, and what can be seen of them:
// exports in their order, evicted keys in theirs, statistics.
std::string TableLives();

// One line that depends on this process's secrets.
std::string TableSecrets();

}  // namespace msrec
