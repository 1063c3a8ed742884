// SPDX-License-Identifier: Apache-2.0
//
// Functions that check the settings of admission and eviction. A check throws std::invalid_argument
// if a setting is out of range. The message begins with `subject` ("table 'x': ").
#pragma once

#include <string>

#include "policy/admission.h"
#include "policy/eviction.h"

namespace msrec {

void CheckAdmission(const Admission& admission, const std::string& subject);
void CheckEviction(const Eviction& eviction, const std::string& subject);

}  // namespace msrec
