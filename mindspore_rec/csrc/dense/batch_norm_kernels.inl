// SPDX-License-Identifier: Apache-2.0
//
// Loops of batch normalization; part of elementwise.inl.

namespace msrec {
namespace {

void Divide(int64_t width, float divisor, float* x) {
  for (int64_t j = 0; j < width; ++j) x[j] /= divisor;
}

void SquaredDeviations(int64_t rows, int64_t width, Block x, const float* mean, float* sums_out) {
  float* __restrict sums = sums_out;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict row = RowOf(x, r);
    for (int64_t j = 0; j < width; ++j) {
      const float deviation = row[j] - mean[j];
      sums[j] += deviation * deviation;
    }
  }
}

MSREC_INLINE const float* MaskOf(const MaskRows& masks, int64_t width, int64_t r) {
  return masks.data == nullptr ? nullptr : masks.data + (masks.first + r) % masks.count * width;
}

template <typename A>
void NormalizeBy(int64_t rows, int64_t width, Block x, const Normalizer& norm,
                 const MaskRows& masks, Block output) {
  const float* mean = norm.mean;
  const float* scale = norm.scale;
  const float* beta = norm.beta;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict in = RowOf(x, r);
    const float* __restrict mask = MaskOf(masks, width, r);
    float* __restrict out = RowOf(output, r);
    if (mask == nullptr) {
      for (int64_t j = 0; j < width; ++j) {
        out[j] = A::Value((in[j] - mean[j]) * scale[j] + beta[j]);
      }
    } else {
      for (int64_t j = 0; j < width; ++j) {
        out[j] = A::Value((in[j] - mean[j]) * scale[j] + beta[j]) * mask[j];
      }
    }
  }
}

void Normalize(Activation a, int64_t rows, int64_t width, Block x, const Normalizer& norm,
               const MaskRows& masks, Block output) {
#define CALL(A) NormalizeBy<A>(rows, width, x, norm, masks, output)
  MSREC_FOR_ACTIVATION(a, CALL)
#undef CALL
}

// A row of NormalizedGradient. `mask` null: no masks; `gradient` null: it is in `result`. Each case
// is a loop in which no two pointers are the same, so that compilers turn it into vector code.
template <typename A>
MSREC_INLINE void NormalizedGradientRow(int64_t width, const float* __restrict in,
                                        const float* __restrict mean, const float* __restrict mask,
                                        const float* __restrict y, const float* __restrict gradient,
                                        float* __restrict sums, float* __restrict products,
                                        float* __restrict result) {
  const auto loop = [&](auto&& given) __attribute__((always_inline)) {
    for (int64_t j = 0; j < width; ++j) {
      const float below = A::Gradient(y[j], given(j));
      sums[j] += below;
      products[j] += below * (in[j] - mean[j]);
      result[j] = below;
    }
  };
  if (mask == nullptr && gradient == nullptr) {
    loop([&](int64_t j) { return result[j]; });
  } else if (mask == nullptr) {
    loop([&](int64_t j) { return gradient[j]; });
  } else if (gradient == nullptr) {
    loop([&](int64_t j) { return result[j] * mask[j]; });
  } else {
    loop([&](int64_t j) { return gradient[j] * mask[j]; });
  }
}

template <typename A>
void NormalizedGradientBy(int64_t rows, int64_t width, Block x, const float* mean,
                          const MaskRows& masks, Block output, Block gradient, float* sums,
                          float* products, Block result) {
  const bool in_place = gradient.data == result.data;
  for (int64_t r = 0; r < rows; ++r) {
    NormalizedGradientRow<A>(width, RowOf(x, r), mean, MaskOf(masks, width, r), RowOf(output, r),
                             in_place ? nullptr : RowOf(gradient, r), sums, products,
                             RowOf(result, r));
  }
}

void NormalizedGradient(Activation a, int64_t rows, int64_t width, Block x, const float* mean,
                        const MaskRows& masks, Block output, Block gradient, float* sums,
                        float* products, Block result) {
#define CALL(A) \
  NormalizedGradientBy<A>(rows, width, x, mean, masks, output, gradient, sums, products, result)
  MSREC_FOR_ACTIVATION(a, CALL)
#undef CALL
}

void NormalizeGradient(int64_t rows, int64_t width, Block x, const float* mean, const float* scale,
                       const float* shift, const float* slope, Block gradient) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict in = RowOf(x, r);
    float* __restrict g = RowOf(gradient, r);
    for (int64_t j = 0; j < width; ++j) {
      g[j] = scale[j] * (g[j] - shift[j] - (in[j] - mean[j]) * slope[j]);
    }
  }
}

}  // namespace
}  // namespace msrec
