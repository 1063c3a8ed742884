// SPDX-License-Identifier: Apache-2.0
//
// Shared parts of the device loops: functions that make kernel arguments from blocks, and functions
// that sum up columns. The loops are plain functions that start kernels on the thread's device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/kernel_arguments.h"
#include "cuda/kernel_device.h"

namespace msrec {
namespace kernel_loops {

// Each function below sets one group of the loops in `Elementwise`.
void SetRowLoops(Elementwise* loops);
void SetSumLoops(Elementwise* loops);
void SetGroupLoops(Elementwise* loops);
void SetCrossLoops(Elementwise* loops);
void SetNumberLoops(Elementwise* loops);

inline kernels::Rows RowsOf(const Block& block) { return {block.data, block.ld}; }
inline kernels::HalfRows RowsOf(const uint16_t* data, int64_t ld) {
  return {const_cast<uint16_t*>(data), ld};
}
inline kernels::Masks MasksOf(const MaskRows& masks) {
  return {masks.data, masks.data == nullptr ? 0 : masks.first % masks.count, masks.count};
}

// Starts a kernel on this thread's device.
template <typename Arguments>
void Launch(const char* kernel, int64_t threads, const Arguments& arguments) {
  CurrentKernelDevice().Launch(kernel, threads, arguments);
}

// Splits rows into chunks. In each chunk, one thread per column adds up the rows. The number of
// chunks is large enough to keep a GPU busy, and small enough that one thread per column can add up
// all chunks. The chunks depend only on the number of rows.
inline kernels::Chunks ChunksOf(int64_t rows, int64_t width) {
  constexpr int64_t kMostChunks = 256;
  constexpr int64_t kLeastRows = 32;
  return {rows, width, std::max(kLeastRows, (rows + kMostChunks - 1) / kMostChunks)};
}
// Splits rows into chunks of one row each, so that a kernel does not add up several rows.
inline kernels::Chunks SingleRows(int64_t rows, int64_t width) { return {rows, width, 1}; }

inline int64_t CountOf(const kernels::Chunks& chunks) {
  return (chunks.rows + chunks.rows_each - 1) / chunks.rows_each;
}
inline int64_t ThreadsOf(const kernels::Chunks& chunks) { return CountOf(chunks) * chunks.width; }

inline float* ScratchFloats(int64_t n) {
  const size_t bytes = sizeof(float) * static_cast<size_t>(n);
  return static_cast<float*>(CurrentKernelDevice().Scratch(bytes));
}

// Adds the partial sums [chunks, width] of all chunks to sums[column].
void JoinChunks(const kernels::Chunks& chunks, const float* partial, float* sums);

// Adds the sum of each column of x to sums[column]. `partial` has ThreadsOf(ChunksOf(rows, width))
// floats.
void AddColumns(int64_t rows, int64_t width, const Block& x, float* partial, float* sums);

}  // namespace kernel_loops
}  // namespace msrec
