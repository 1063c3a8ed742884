// SPDX-License-Identifier: Apache-2.0
//
// Parts that loops of a device share: arguments made of blocks, and sums of columns. The loops
// themselves are plain functions that start kernels on the thread's device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/kernel_arguments.h"
#include "cuda/kernel_device.h"

namespace msrec {
namespace kernel_loops {

// Each sets the loops of its subject.
void SetRowLoops(Elementwise* loops);
void SetSumLoops(Elementwise* loops);
void SetGroupLoops(Elementwise* loops);
void SetCrossLoops(Elementwise* loops);

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

// Chunks of rows whose columns are added up by a thread each: as many as keep a GPU busy, and few
// enough to be joined by one thread a column. They follow from the number of rows alone.
inline kernels::Chunks ChunksOf(int64_t rows, int64_t width) {
  constexpr int64_t kMostChunks = 256;
  constexpr int64_t kLeastRows = 32;
  return {rows, width, std::max(kLeastRows, (rows + kMostChunks - 1) / kMostChunks)};
}
// Chunks of a row each: nothing is added up.
inline kernels::Chunks SingleRows(int64_t rows, int64_t width) { return {rows, width, 1}; }

inline int64_t CountOf(const kernels::Chunks& chunks) {
  return (chunks.rows + chunks.rows_each - 1) / chunks.rows_each;
}
inline int64_t ThreadsOf(const kernels::Chunks& chunks) { return CountOf(chunks) * chunks.width; }

inline float* ScratchFloats(int64_t n) {
  const size_t bytes = sizeof(float) * static_cast<size_t>(n);
  return static_cast<float*>(CurrentKernelDevice().Scratch(bytes));
}

// sums[column] += sum of partial [chunks, width] over the chunks.
void JoinChunks(const kernels::Chunks& chunks, const float* partial, float* sums);

// sums[column] += sum of x over the rows. `partial` has ThreadsOf(ChunksOf(rows, width)) floats.
void AddColumns(int64_t rows, int64_t width, const Block& x, float* partial, float* sums);

}  // namespace kernel_loops
}  // namespace msrec
