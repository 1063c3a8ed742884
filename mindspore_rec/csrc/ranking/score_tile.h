// SPDX-License-Identifier: Apache-2.0
//
// Computes the scores of a tile of users and items. A score is the dot product of a user's vector
// and an item's vector. A score is identical, bit for bit, for any tile, instruction set and number
// of threads, because the products of the two vectors' elements are added in float32 in the order
// of the elements. ScoreOf returns the identical score for a single user and item.
#pragma once

#include <cstddef>

namespace msrec {

// Number of items in a packed block. Block b of packed items contains the numbers [dim,
// kBlockItems] of kBlockItems items, beginning with item b * kBlockItems. The last block is filled
// up with zeros.
constexpr size_t kBlockItems = 16;

// scores[u * blocks * kBlockItems + i] = the score of user u and packed item i; u in [0, users).
using ScoreTileLoop = void (*)(const float* vectors, size_t users, const float* packed,
                               size_t blocks, size_t dim, float* scores);

// Returns the loop for the instruction set that ActiveKernels names.
ScoreTileLoop ActiveScoreTile();

// Returns the loop for the instruction set `name`, or null if this CPU or build does not support
// that instruction set. For tests.
ScoreTileLoop FindScoreTile(const char* name);

// Packs n rows [n, dim] of `items` into blocks.
void PackItems(const float* items, size_t n, size_t dim, float* packed);

// Returns the score of one user and one item.
float ScoreOf(const float* user, const float* item, size_t dim);

}  // namespace msrec
