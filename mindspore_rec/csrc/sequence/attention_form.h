// SPDX-License-Identifier: Apache-2.0
//
// AttentionForm: the numbers and biases of an attention.
#pragma once

#include <cstdint>

namespace msrec {

// Function that makes weights of scores.
enum class Attention {
  kSoftmax = 0,  // the softmax of the scores / sqrt(dim)
  kSilu = 1,     // the SiLU of each score / the largest length, as in HSTU
};

struct AttentionForm {
  Attention kind = Attention::kSoftmax;
  int64_t heads = 1;
  int64_t dim = 1;            // of a head
  float score_scale = 1.0f;   // of the product of query and key
  float weight_scale = 1.0f;  // of a SiLU
  // Added to the scores: an element for each distance of rows, the last one also for all larger
  // distances; and for each bucket of a difference of times. Null: none.
  const float* by_distance = nullptr;
  int64_t distances = 0;
  const float* by_time = nullptr;
  int64_t buckets = 0;
  const int64_t* times = nullptr;  // of each row; read if by_time is given

  int64_t width() const { return heads * dim; }
};

// Differences of times fall into buckets: 0 for at most 0, otherwise the number of the difference's
// bits: 1 for 1, 2 for 2 and 3, 3 for 4 to 7. The last bucket also has all larger differences.
constexpr int64_t kMostTimeBuckets = 48;

}  // namespace msrec
