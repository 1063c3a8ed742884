// SPDX-License-Identifier: Apache-2.0
//
// MSREC_INLINE declares a function that is compiled into each of its callers, with the caller's
// instruction set. In code for a GPU, MSREC_INLINE declares a device function.
#pragma once

#ifdef __CUDACC_RTC__
#define MSREC_INLINE static __device__ __forceinline__
#else
#define MSREC_INLINE static inline __attribute__((always_inline))
#endif
