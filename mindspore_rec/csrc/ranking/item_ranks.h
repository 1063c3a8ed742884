// SPDX-License-Identifier: Apache-2.0
//
// Computes the ranks of target items among all items, and the best items of each user. The score of
// an item is computed from a user's vector and the item's vector. Scores are computed in tiles, so
// that no matrix of all users and items is stored. The result for a user is identical, bit for bit,
// for any number of threads and any instruction set, and does not depend on the other users in the
// call (score_tile.h).
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
  const int64_t* values;   // items in [0, num_items), in any order, may repeat
  const int64_t* offsets;  // [num_users + 1]
};

// Computes the mid rank of each target: ranks[n] is the rank of item targets.values[n] for the
// target's user. The mid rank is 1, plus the number of other items with a higher score, plus half
// the number of other items with an equal score. Neither items that are masked for the user nor
// other targets of the user are counted. A score that overflows to NaN never improves the rank of a
// target. If a target's score is NaN, all items rank above the target. Items whose score is NaN
// rank above every target.
void RankTargets(const ScoredVectors& vectors, const ItemLists& targets, const ItemLists& masked,
                 double* ranks);

// For each user u, finds the k unmasked items with the highest scores. Writes the items to items[u,
// 0 .. k) and the scores to scores[u, 0 .. k), in descending order of scores. If scores are equal,
// the item with the smaller number is first. If user u has fewer than k results, the remaining
// places contain the item -1 and the score -infinity. Items whose score is NaN are left out.
void TopItems(const ScoredVectors& vectors, const ItemLists& masked, size_t k, int64_t* items,
              float* scores);

}  // namespace msrec
