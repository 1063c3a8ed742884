// SPDX-License-Identifier: Apache-2.0
//
// The element-wise loops for one instruction set. The build (setup.py) chooses compiler flags by
// this file's name.
#define MSREC_ELEMENTWISE_NAME "avx512"
#define MSREC_ELEMENTWISE_SYMBOL kElementwiseAvx512
#include "dense/elementwise.inl"
