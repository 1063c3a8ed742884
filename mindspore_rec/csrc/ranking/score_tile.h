// SPDX-License-Identifier: Apache-2.0
//
// Scores of a tile of users and items: products of their vectors. Each score is the sum of the
// products of the two vectors' numbers, added one after the other in the order of the numbers, in
// float32. So a score has the same bits in every tile, with every instruction set and with every
// number of threads, and it has the same bits as ScoreOf.
#pragma once

#include <cstddef>

namespace msrec {

// Items of a packed block. Block b of packed items has the numbers [dim, kBlockItems] of the items
// from b * kBlockItems; items that are missing in the last block have zeros.
constexpr size_t kBlockItems = 16;

// scores[u * blocks * kBlockItems + i] = the score of user u and packed item i; u in [0, users).
using ScoreTileLoop = void (*)(const float* vectors, size_t users, const float* packed,
                               size_t blocks, size_t dim, float* scores);

// Returns the loop for the instruction set that ActiveKernels names.
ScoreTileLoop ActiveScoreTile();

// Returns the loop of a set by name, or null if this CPU or build lacks the set. For tests.
ScoreTileLoop FindScoreTile(const char* name);

// Packs n rows [n, dim] of `items` into blocks.
void PackItems(const float* items, size_t n, size_t dim, float* packed);

// Returns the score of one user and one item.
float ScoreOf(const float* user, const float* item, size_t dim);

}  // namespace msrec
