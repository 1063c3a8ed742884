// SPDX-License-Identifier: Apache-2.0
//
// Explanation: a table's data about a key, and the settings that decide whether the key has a row.
#pragma once

#include <cstdint>
#include <string>

#include "policy/admission.h"
#include "policy/eviction.h"
#include "policy/eviction_log.h"

namespace msrec {

struct Explanation {
  bool present = false;
  std::string tier;        // "host", or the kind of the lower tier; "" if there is no row
  bool trained = true;     // of the table: whether training changes it
  uint32_t count = 0;      // of the row, or of the candidate: an estimate where there is a sketch
  int64_t last_step = -1;  // -1 where there is no row
  int64_t last_time = -1;  // the same
  double norm = 0.0;       // L2, of the value
  double score = 0.0;      // frequency or score, where the table keeps one
  EvictedKey evicted;      // its last eviction, if that is remembered
  Admission admission;
  Eviction eviction;
  int64_t step = 0;  // the table's clock
  uint32_t time = 0;
};

}  // namespace msrec
