// SPDX-License-Identifier: Apache-2.0
//
// The loop of the logistic loss. Part of elementwise.inl, whose rules hold here, too.
namespace msrec {
namespace {

// log(1 + e) of e in [0, 1], to 2 units in the last place: 2 atanh(e / (2 + e)).
MSREC_INLINE float LogOnePlus(float e) {
  const float z = e / (2.0f + e);
  const float w = z * z;
  float p = 1.0f / 15.0f;
  p = p * w + 1.0f / 13.0f;
  p = p * w + 1.0f / 11.0f;
  p = p * w + 1.0f / 9.0f;
  p = p * w + 1.0f / 7.0f;
  p = p * w + 1.0f / 5.0f;
  p = p * w + 1.0f / 3.0f;
  return 2.0f * (z + z * w * p);
}

// Writes the losses of some logits, and their gradients times `scale`.
MSREC_INLINE void LogisticLosses(int64_t n, const float* __restrict logits,
                                 const float* __restrict labels, float scale,
                                 float* __restrict losses, float* __restrict gradient) {
  for (int64_t i = 0; i < n; ++i) {
    const float x = logits[i];
    const float y = labels[i];
    const float e = Exp(-Magnitude(x));
    const float below = x < 0.0f ? -x : 0.0f;
    const float loss = (1.0f - y) * x + below + LogOnePlus(e);
    // As MindSpore's, which takes an infinity from an infinity there.
    losses[i] = x == -Infinity() ? AsFloat(0x7fc00000) : loss;
    const float probability = (x < 0.0f ? e : 1.0f) / (1.0f + e);
    gradient[i] = (probability - y) * scale;
  }
}

// Returns the sum of the losses in 16 sums of every 16th: the same order for all sets.
double LogisticLoss(int64_t n, const float* logits, const float* labels, float scale,
                    float* gradient) {
  constexpr int64_t kAtOnce = 256;
  constexpr int64_t kLanes = 16;
  float losses[kAtOnce];
  double lanes[kLanes] = {};
  for (int64_t from = 0; from < n; from += kAtOnce) {
    const int64_t count = n - from < kAtOnce ? n - from : kAtOnce;
    LogisticLosses(count, logits + from, labels + from, scale, losses, gradient + from);
    for (int64_t i = count; i % kLanes != 0; ++i) losses[i] = 0.0f;
    for (int64_t i = 0; i < count; i += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] += static_cast<double>(losses[i + l]);
    }
  }
  double sum = 0.0;
  for (int64_t l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

}  // namespace
}  // namespace msrec
