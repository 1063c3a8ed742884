// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "policy/eviction.h"

namespace msrec {

// Returns the name of an eviction reason in Python; "" for kNone.
inline const char* ReasonName(EvictionReason reason) {
  switch (reason) {
    case EvictionReason::kIdleSteps:
      return "idle_steps";
    case EvictionReason::kIdleSeconds:
      return "idle_seconds";
    case EvictionReason::kCapacity:
      return "capacity";
    case EvictionReason::kNorm:
      return "norm";
    case EvictionReason::kNone:
      break;
  }
  return "";
}

}  // namespace msrec
