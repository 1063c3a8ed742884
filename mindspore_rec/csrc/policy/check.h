// SPDX-License-Identifier: Apache-2.0
//
// Checks of the settings of admission and eviction. Each throws std::invalid_argument, with
// `subject` ("table 'x': ") in front of the message, where a setting is out of its range.
#pragma once

#include <string>

#include "policy/admission.h"
#include "policy/eviction.h"

namespace msrec {

void CheckAdmission(const Admission& admission, const std::string& subject);
void CheckEviction(const Eviction& eviction, const std::string& subject);

}  // namespace msrec
