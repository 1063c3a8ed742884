// SPDX-License-Identifier: Apache-2.0
//
// Kernels that treat each number for itself, and sums of columns.
//
// What is added up over rows is added in chunks of rows whose size follows from the number of rows,
// and chunks in their order: the same bits in each run.
namespace msrec {
namespace kernels {
namespace {

// Row and column of thread i of [rows, width]. Thread numbers have 32 bits, in which a GPU divides
// several times faster than in 64.
struct Place {
  int64_t row, column;
};
MSREC_INLINE Place PlaceOf(int64_t i, int64_t width) {
  const uint32_t row = static_cast<uint32_t>(i) / static_cast<uint32_t>(width);
  return {row, i - row * width};
}
MSREC_INLINE float* At(const Rows& rows, const Place& at) {
  return rows.data + at.row * rows.ld + at.column;
}

MSREC_INLINE float ActivationOf(int32_t activation, float x) {
  switch (activation) {
    case 1:
      return Relu::Value(x);
    case 2:
      return LeakyRelu::Value(x);
    case 4:
      return TanhOf::Value(x);
    case 5:
      return SigmoidOf::Value(x);
    default:
      return x;
  }
}

MSREC_KERNEL(Activate, ActivateArguments) {
  const Place at = PlaceOf(i, a.width);
  float* x = At(a.x, at);
  *x = ActivationOf(a.activation, a.bias == nullptr ? *x : *x + a.bias[at.column]);
}

MSREC_KERNEL(Copy, CopyArguments) {
  const Place at = PlaceOf(i, a.width);
  *At(a.to, at) = *At(a.from, at);
}

MSREC_KERNEL(ChunkSum, ChunkSumArguments) {
  const Place at = PlaceOf(i, a.width);  // chunk and column
  const int64_t first = at.row * a.chunk_rows;
  const int64_t end = first + a.chunk_rows < a.rows ? first + a.chunk_rows : a.rows;
  float sum = 0.0f;
  for (int64_t r = first; r < end; ++r) sum += a.x.data[r * a.x.ld + at.column];
  a.partial[at.row * a.width + at.column] = sum;
}

MSREC_KERNEL(JoinChunks, JoinChunksArguments) {
  float sum = 0.0f;
  for (int64_t chunk = 0; chunk < a.chunks; ++chunk) sum += a.partial[chunk * a.width + i];
  a.sums[i] += sum;
}

}  // namespace
}  // namespace kernels
}  // namespace msrec
