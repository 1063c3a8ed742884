// SPDX-License-Identifier: Apache-2.0
//
// Learned vectors of places in a list: a row of a table is added to each value. The place of a
// value is its distance from the newest value of its list or, with times, the bucket of the
// difference of their times (sequence/attention.h). The table's last row is also for all larger
// distances and differences.
#pragma once

#include <cstdint>

#include "sequence/lists.h"
#include "util/thread_pool.h"

namespace msrec {

struct PlaceForm {
  int64_t places = 1;              // rows of the table
  int64_t dim = 1;                 // of a row
  const int64_t* times = nullptr;  // of each value; null: distances
};

// Writes values + the rows of their places, [N, dim].
void AddPlaces(const PlaceForm& form, const Lists& lists, const float* values, const float* table,
               float* output, ThreadPool* pool);

// Writes the gradient of the table: sums of rows, each in the order of the values.
void PlaceGradient(const PlaceForm& form, const Lists& lists, const float* of_output,
                   float* of_table, ThreadPool* pool);

}  // namespace msrec
