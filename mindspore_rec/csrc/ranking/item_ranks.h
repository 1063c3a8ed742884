// SPDX-License-Identifier: Apache-2.0
//
// Ranks of items among all items, and the best items, by the scores of users' vectors and items'
// vectors. Scores are computed in tiles, so that no matrix of all users and items is stored. The
// result has the same bits with any number of threads, any instruction set and any other users in
// the call (score_tile.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace msrec {

// The score of user u and item i is the product of users[u] and items[i], plus bias[i].
struct ScoredVectors {
  const float* users;  // [num_users, dim]
  size_t num_users;
  const float* items;  // [num_items, dim]
  size_t num_items;
  const float* bias;  // [num_items], or null: no bias
  size_t dim;
};

// List u is values[offsets[u]] to values[offsets[u + 1] - 1].
struct ItemLists {
  const int64_t* values;   // items in [0, num_items), in any order, also repeated
  const int64_t* offsets;  // [num_users + 1]
};

// ranks[n] = the mid rank of targets.values[n] for its user: 1, plus the number of other items with
// a higher score, plus half the number of other items with an equal score. Items that are masked
// for the user, and other targets of the user, do not count. Scores that overflow to NaN never
// favour a target: a target with NaN is below all items, and items with NaN are above the target.
void RankTargets(const ScoredVectors& vectors, const ItemLists& targets, const ItemLists& masked,
                 double* ranks);

// items[u, 0 .. k), scores[u, 0 .. k) = the k items with the highest scores for user u that are not
// masked, and their scores, the highest first. Of equal scores, the item with the smaller number is
// first. Places without an item have the item -1 and the score -infinity. Items whose score is NaN
// are left out.
void TopItems(const ScoredVectors& vectors, const ItemLists& masked, size_t k, int64_t* items,
              float* scores);

}  // namespace msrec
