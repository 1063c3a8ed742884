// SPDX-License-Identifier: Apache-2.0
//
// The loop over rows' digests for one instruction set; setup.py passes the flags that go with this
// file's name.
#define MSREC_ROW_DIGESTS_SYMBOL RowDigestsAvx512
#include "rows/row_digests.inl"
