// SPDX-License-Identifier: Apache-2.0
//
// Arguments of the kernels, for those who start them and for the kernels: read by the host's
// compiler and by NVRTC, which has no headers of its own.
#pragma once

#ifdef __CUDACC_RTC__
using int32_t = int;
using int64_t = long long;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
#else
#include <cstdint>
#endif

namespace msrec {
namespace kernels {

// A block of rows, `ld` elements apart.
struct Rows {
  float* data;
  int64_t ld;
};

struct HalfRows {
  uint16_t* data;
  int64_t ld;
};

// One thread a number: x = a(x + bias) of [rows, width].
struct ActivateArguments {
  int32_t activation;
  const float* bias;  // may be null
  int64_t width;
  Rows x;
};

struct CopyArguments {
  int64_t width;
  Rows from, to;
};

// One thread a column of a chunk of rows: partial[chunk][column] = sum of x over the chunk's rows.
struct ChunkSumArguments {
  int64_t rows, width, chunk_rows;
  Rows x;
  float* partial;
};

// One thread a column: sums[column] += sum of partial over the chunks, in their order.
struct JoinChunksArguments {
  int64_t width, chunks;
  const float* partial;
  float* sums;
};

}  // namespace kernels
}  // namespace msrec
