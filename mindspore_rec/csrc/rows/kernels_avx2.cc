// SPDX-License-Identifier: Apache-2.0
//
// The row kernels for one instruction set; setup.py passes the compiler flags for this file's name.
#define MSREC_KERNELS_NAME "avx2"
#define MSREC_KERNELS_SYMBOL kKernelsAvx2
#include "rows/kernels.inl"
