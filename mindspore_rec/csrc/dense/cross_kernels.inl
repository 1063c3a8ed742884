// SPDX-License-Identifier: Apache-2.0
//
// The loops of cross networks and gates. Part of elementwise.inl, whose rules hold here, too.
namespace msrec {
namespace {

typedef float Eight __attribute__((vector_size(32)));

// sum += a[0..8) b[0..8). Not by value: how a function takes vectors depends on the flags.
MSREC_INLINE void AddEight(const float* a, const float* b, Eight* sum) {
  Eight x, y;
  __builtin_memcpy(&x, a, sizeof(x));
  __builtin_memcpy(&y, b, sizeof(y));
  *sum += x * y;
}

// Sum of a[j] b[j], as 32 sums of every 32nd product: in the same order whatever the width of the
// processor's vectors.
MSREC_INLINE float Dot(const float* a, const float* b, int64_t width) {
  Eight s0 = {}, s1 = {}, s2 = {}, s3 = {};
  int64_t j = 0;
  for (; j + 32 <= width; j += 32) {
    AddEight(a + j, b + j, &s0);
    AddEight(a + j + 8, b + j + 8, &s1);
    AddEight(a + j + 16, b + j + 16, &s2);
    AddEight(a + j + 24, b + j + 24, &s3);
  }
  for (; j + 8 <= width; j += 8) AddEight(a + j, b + j, &s0);
  s0 = (s0 + s2) + (s1 + s3);
  for (int k = 0; j < width; ++j, ++k) s0[k] += a[j] * b[j];
  return ((s0[0] + s0[4]) + (s0[2] + s0[6])) + ((s0[1] + s0[5]) + (s0[3] + s0[7]));
}

// ---------------------------------------------------------------- gates

void ScaleGroups(int64_t rows, int64_t groups, int64_t group, Block scales, Block x, Block output) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < groups; ++k) {
      const float scale = RowOf(scales, r)[k];
      const float* __restrict in = RowOf(x, r) + k * group;
      float* __restrict out = RowOf(output, r) + k * group;
      for (int64_t j = 0; j < group; ++j) out[j] = scale * in[j];
    }
  }
}

void ScaleGroupsGradient(int64_t rows, int64_t groups, int64_t group, Block scales, Block x,
                         Block gradient, Target of_scales, Target of_x) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < groups; ++k) {
      const float scale = RowOf(scales, r)[k];
      const float* __restrict in = RowOf(x, r) + k * group;
      const float* __restrict g = RowOf(gradient, r) + k * group;
      float* of_scale = RowOf(of_scales.block, r) + k;
      *of_scale = (of_scales.adds ? *of_scale : 0.0f) + Dot(g, in, group);
      float* __restrict below = RowOf(of_x.block, r) + k * group;
      if (of_x.adds) {
        for (int64_t j = 0; j < group; ++j) below[j] += scale * g[j];
      } else {
        for (int64_t j = 0; j < group; ++j) below[j] = scale * g[j];
      }
    }
  }
}

// ---------------------------------------------------------------- one cross layer with a map

void CrossCombineGradient(int64_t rows, int64_t width, Block x0, Block t, Block gradient,
                          Target of_x0, Target of_t, Target of_x) {
  const bool is_same = of_x0.block.data == of_x.block.data;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict g = RowOf(gradient, r);
    const float* __restrict in = RowOf(x0, r);
    const float* __restrict map = RowOf(t, r);
    float* __restrict of_map = RowOf(of_t.block, r);
    if (of_t.adds) {
      for (int64_t j = 0; j < width; ++j) of_map[j] += g[j] * in[j];
    } else {
      for (int64_t j = 0; j < width; ++j) of_map[j] = g[j] * in[j];
    }
    float* __restrict of_in = RowOf(of_x0.block, r);
    if (is_same) {
      if (of_x0.adds) {
        for (int64_t j = 0; j < width; ++j) of_in[j] += g[j] * map[j] + g[j];
      } else {
        for (int64_t j = 0; j < width; ++j) of_in[j] = g[j] * map[j] + g[j];
      }
      continue;
    }
    float* __restrict of_crossed = RowOf(of_x.block, r);
    if (of_x0.adds) {
      for (int64_t j = 0; j < width; ++j) of_in[j] += g[j] * map[j];
    } else {
      for (int64_t j = 0; j < width; ++j) of_in[j] = g[j] * map[j];
    }
    if (of_x.adds) {
      for (int64_t j = 0; j < width; ++j) of_crossed[j] += g[j];
    } else {
      for (int64_t j = 0; j < width; ++j) of_crossed[j] = g[j];
    }
  }
}

// ---------------------------------------------------------------- all layers by a number a row

void CrossRowsForward(int64_t rows, const CrossRows& cross, Block x, Block factor, Block products,
                      Block output) {
  const int64_t width = cross.width;
  const float* __restrict bias = cross.bias;
  for (int64_t r = 0; r < rows; ++r) {
    float* s = RowOf(products, r);
    float alpha = 1.0f;
    for (int64_t k = 0; k < cross.layers; ++k) {
      s[k] = Dot(RowOf(factor, r), cross.weight + k * width, width);
      alpha = alpha + alpha * s[k] + cross.constants[k];
    }
    const float* __restrict in = RowOf(x, r);
    float* __restrict out = RowOf(output, r);
    for (int64_t j = 0; j < width; ++j) out[j] = alpha * in[j] + bias[j];
  }
}

void CrossRowsGradient(int64_t rows, const CrossRows& cross, Block x, Block factor, Block products,
                       Block gradient, Target of_x, float* sums) {
  const int64_t width = cross.width;
  const int64_t layers = cross.layers;
  float* __restrict of_bias = sums + layers * width;
  float* of_constants = of_bias + width;
  float alphas[kMostCrossLayers + 1];
  for (int64_t r = 0; r < rows; ++r) {
    const float* s = RowOf(products, r);
    alphas[0] = 1.0f;
    for (int64_t k = 0; k < layers; ++k) {
      alphas[k + 1] = alphas[k] + alphas[k] * s[k] + cross.constants[k];
    }
    const float* __restrict g = RowOf(gradient, r);
    float* __restrict below = RowOf(of_x.block, r);
    const float alpha = alphas[layers];
    for (int64_t j = 0; j < width; ++j) of_bias[j] += g[j];
    if (of_x.adds) {
      for (int64_t j = 0; j < width; ++j) below[j] += alpha * g[j];
    } else {
      for (int64_t j = 0; j < width; ++j) below[j] = alpha * g[j];
    }
    const float* __restrict in = RowOf(factor, r);
    float of_alpha = Dot(RowOf(gradient, r), RowOf(x, r), width);
    for (int64_t k = layers; k-- > 0;) {
      of_constants[k] += of_alpha;
      const float exact = of_alpha * alphas[k];
      const float of_product = cross.rounds ? AsFloat(Rounded(exact) << 16) : exact;
      of_alpha = of_alpha + of_alpha * s[k];
      const float* __restrict w = cross.weight + k * width;
      float* __restrict of_weight = sums + k * width;
      for (int64_t j = 0; j < width; ++j) {
        below[j] += of_product * w[j];
        of_weight[j] += of_product * in[j];
      }
    }
  }
}

}  // namespace
}  // namespace msrec
