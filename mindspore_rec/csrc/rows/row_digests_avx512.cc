// SPDX-License-Identifier: Apache-2.0
//
// The loop that computes digests of rows, for one instruction set. The build (setup.py) chooses
// compiler flags by this file's name.
#define MSREC_ROW_DIGESTS_SYMBOL RowDigestsAvx512
#include "rows/row_digests.inl"
