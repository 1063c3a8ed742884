// SPDX-License-Identifier: Apache-2.0
//
// AttentionForm: the settings and the biases of an attention.
#pragma once

#include <cstdint>

namespace msrec {

// Function that turns scores into weights.
enum class Attention {
  kSoftmax = 0,  // the softmax of the scores / sqrt(dim)
  kSilu = 1,     // the SiLU of each score / the largest length, as in HSTU
};

struct AttentionForm {
  Attention kind = Attention::kSoftmax;
  int64_t heads = 1;
  int64_t dim = 1;            // dim of a head
  float score_scale = 1.0f;   // factor of the product of query and key
  float weight_scale = 1.0f;  // factor of a SiLU
  // Biases that are added to the scores; null means no bias. `by_distance` has an element for each
  // distance between two rows; the last element is also the bias of all larger distances. `by_time`
  // has an element for each bucket of time differences.
  const float* by_distance = nullptr;
  int64_t distances = 0;
  const float* by_time = nullptr;
  int64_t buckets = 0;
  const int64_t* times = nullptr;  // time of each row; only read if by_time is not null

  int64_t width() const { return heads * dim; }
};

// Time differences are divided into buckets. A difference of at most 0 is in bucket 0; for all
// other differences, the bucket is the number of bits of the difference. For example, bucket 1
// contains the difference 1, bucket 2 contains 2 and 3, and bucket 3 contains 4 to 7. The last
// bucket also contains all larger differences.
constexpr int64_t kMostTimeBuckets = 48;

}  // namespace msrec
