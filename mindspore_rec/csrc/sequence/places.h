// SPDX-License-Identifier: Apache-2.0
//
// A table of learned vectors, with one row per place in a list. Each value gets a place, and the
// row of this place is added to the value. Without times, the place is the value's distance from
// the newest value of the list. With times, the place is the bucket (sequence/attention_form.h) of
// the difference between the value's time and the newest value's time. If a place is beyond the
// table's last row, the last row is used.
#pragma once

#include <cstdint>

#include "sequence/lists.h"
#include "util/thread_pool.h"

namespace msrec {

struct PlaceForm {
  int64_t places = 1;              // number of rows of the table
  int64_t dim = 1;                 // dim of a row
  const int64_t* times = nullptr;  // time of each value, or null to use distances
};

// Writes output [N, dim]. Each row is the sum of a value and the table's row for the value's place.
void AddPlaces(const PlaceForm& form, const Lists& lists, const float* values, const float* table,
               float* output, ThreadPool* pool);

// Writes the gradient of the table. If several values use the same row, the values' gradients are
// added in the order of the values.
void PlaceGradient(const PlaceForm& form, const Lists& lists, const float* of_output,
                   float* of_table, ThreadPool* pool);

}  // namespace msrec
