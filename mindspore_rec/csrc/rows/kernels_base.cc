// SPDX-License-Identifier: Apache-2.0
//
// The row kernels for one instruction set. setup.py chooses the compiler flags by the name of this
// file.
#define MSREC_KERNELS_NAME "base"
#define MSREC_KERNELS_SYMBOL kKernelsBase
#include "rows/kernels.inl"
