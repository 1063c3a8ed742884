// SPDX-License-Identifier: Apache-2.0
//
// The element-wise loops for one instruction set. The build (setup.py) chooses compiler flags by
// this file's name.
#define MSREC_ELEMENTWISE_NAME "base"
#define MSREC_ELEMENTWISE_SYMBOL kElementwiseBase
#include "dense/elementwise.inl"
