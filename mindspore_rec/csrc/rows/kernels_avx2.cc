// SPDX-License-Identifier: Apache-2.0
//
// The row kernels for AVX2. The build (setup.py) chooses compiler flags by this file's name.
#define MSREC_KERNELS_NAME "avx2"
#define MSREC_KERNELS_SYMBOL kKernelsAvx2
#include "rows/kernels.inl"
