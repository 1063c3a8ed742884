// SPDX-License-Identifier: Apache-2.0
//
// LookupPurpose: the purpose for which a batch is looked up. The purpose decides whether rows are
// inserted for new keys, whether rows in lower tiers are promoted, and how long rows must stay in
// host memory.
#pragma once

#include <cstdint>

namespace msrec {

enum class LookupPurpose : uint8_t {
  kTrain,     // insert what admission lets in, count and touch the rest; hold rows for the step
  kEvaluate,  // change nothing; rows in lower tiers are copied, not promoted
  kInsert,    // as kTrain, outside of a step: hold rows for the call
  kPut,       // insert past admission; hold rows for the call
  kUpdate,    // promote rows that there are, insert nothing; hold rows for the call
  kReplace,   // the same, where the whole rows are overwritten: those in lower tiers are not read
};

// The event after which a row may leave host memory.
enum class Hold : uint8_t {
  kNone,   // they may be demoted
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
