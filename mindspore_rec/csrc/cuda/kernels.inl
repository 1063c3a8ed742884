// SPDX-License-Identifier: Apache-2.0
//
// All kernels, as NVRTC compiles them.
#include "cuda/kernel.h"
#include "dense/functions.inl"
#include "cuda/row_kernels.inl"
