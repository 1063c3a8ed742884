// SPDX-License-Identifier: Apache-2.0
//
// LookupPurpose: the kind of a lookup, for example kTrain or kPut. The purpose decides whether rows
// are inserted for new keys, whether rows in lower tiers are promoted, and how long rows must stay
// in host memory.
#pragma once

#include <cstdint>

namespace msrec {

enum class LookupPurpose : uint8_t {
  kTrain,     // give rows to admitted keys, count and touch all rows; hold the rows for the step
  kEvaluate,  // change nothing; copy rows in lower tiers without promoting them
  kInsert,    // the same as kTrain outside of a step: hold the rows for the call
  kPut,       // give rows to all keys without admission; hold the rows for the call
  kUpdate,    // promote existing rows, insert none; hold the rows for the call
  kReplace,   // as kUpdate, but whole rows are overwritten: rows in lower tiers are not read
};

// The event after which a row may leave host memory.
enum class Hold : uint8_t {
  kNone,   // at any time
  kStep,   // the end of the training step
  kCall,   // the end of the call on the table
  kBatch,  // the release of a prefetched batch
};

inline bool Inserts(LookupPurpose purpose) {
  return purpose == LookupPurpose::kTrain || purpose == LookupPurpose::kInsert ||
         purpose == LookupPurpose::kPut;
}

inline Hold HoldFor(LookupPurpose purpose) {
  switch (purpose) {
    case LookupPurpose::kTrain:
      return Hold::kStep;
    case LookupPurpose::kEvaluate:
      return Hold::kNone;
    default:
      return Hold::kCall;
  }
}

}  // namespace msrec
