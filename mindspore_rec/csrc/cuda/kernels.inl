// SPDX-License-Identifier: Apache-2.0
//
// All kernels, as NVRTC compiles them.
#pragma once

#include "cuda/cross_kernels.inl"
#include "cuda/group_kernels.inl"
#include "cuda/mixture_kernels.inl"
#include "cuda/norm_kernels.inl"
#include "cuda/number_kernels.inl"
#include "cuda/pair_kernels.inl"
#include "cuda/row_kernels.inl"
#include "cuda/sum_kernels.inl"
