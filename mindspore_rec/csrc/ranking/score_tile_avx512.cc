// SPDX-License-Identifier: Apache-2.0
//
// The loop that computes a tile of scores, for one instruction set. The build (setup.py) chooses
// compiler flags by this file's name.
#define MSREC_SCORE_TILE_SYMBOL ScoreTileAvx512
#include "ranking/score_tile.inl"
