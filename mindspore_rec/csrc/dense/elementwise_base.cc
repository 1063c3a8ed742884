// SPDX-License-Identifier: Apache-2.0
//
// The element-wise loops for one instruction set. setup.py chooses the compiler flags by the name
// of this file.
#define MSREC_ELEMENTWISE_NAME "base"
#define MSREC_ELEMENTWISE_SYMBOL kElementwiseBase
#include "dense/elementwise.inl"
