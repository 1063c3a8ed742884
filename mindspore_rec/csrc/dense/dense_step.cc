// SPDX-License-Identifier: Apache-2.0
#include "dense/dense_step.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "rows/step_constants.h"

namespace msrec {
namespace {

// Number of floats in a piece. With Adam's four arrays, a piece takes 256 KB and fits into the
// private cache of a core.
constexpr size_t kPiece = size_t{1} << 14;

// Part of one array.
struct Piece {
  size_t array;
  size_t first;
  size_t n;
};

// Calls fn(piece's number, piece) for all pieces in parallel. Arrays smaller than a piece share a
// task.
class Pieces {
 public:
  explicit Pieces(const std::vector<size_t>& sizes) {
    size_t in_task = kPiece;
    for (size_t a = 0; a < sizes.size(); ++a) {
      for (size_t first = 0; first < sizes[a]; first += kPiece) {
        const size_t n = std::min(kPiece, sizes[a] - first);
        if (in_task + n > kPiece) {
          tasks_.push_back(pieces_.size());
          in_task = 0;
        }
        in_task += n;
        pieces_.push_back({a, first, n});
      }
    }
    tasks_.push_back(pieces_.size());
  }

  size_t size() const { return pieces_.size(); }

  void ForEach(ThreadPool* pool, const std::function<void(size_t, const Piece&)>& fn) const {
    pool->ParallelFor(static_cast<int64_t>(tasks_.size()) - 1, [&](int64_t task) {
      for (size_t p = tasks_[task]; p < tasks_[task + 1]; ++p) fn(p, pieces_[p]);
    });
  }

 private:
  std::vector<Piece> pieces_;
  std::vector<size_t> tasks_;  // the first piece of each task, followed by the number of pieces
};

// Copies each gradient whose memory overlaps memory that the step writes, and changes the
// gradient's pointer in `parameters` to the copy.
std::vector<std::vector<float>> SeparateGradients(int states,
                                                  std::vector<DenseParameter>* parameters) {
  using Range = std::pair<const float*, const float*>;
  std::vector<Range> written;  // sorted, without overlaps
  for (const DenseParameter& p : *parameters) {
    written.emplace_back(p.w, p.w + p.n);
    for (int k = 0; k < states; ++k) written.emplace_back(p.states[k], p.states[k] + p.n);
  }
  std::sort(written.begin(), written.end(),
            [](const Range& a, const Range& b) { return std::less<>()(a.first, b.first); });
  std::vector<std::vector<float>> copies;
  for (DenseParameter& p : *parameters) {
    // Find the first written memory range whose end is after the gradient's beginning.
    const auto at = std::upper_bound(
        written.begin(), written.end(), p.g,
        [](const float* g, const Range& range) { return std::less<>()(g, range.second); });
    if (at == written.end() || !std::less<>()(at->first, p.g + p.n)) continue;
    copies.emplace_back(p.g, p.g + p.n);
    p.g = copies.back().data();
  }
  return copies;
}

}  // namespace

int DenseStates(const Rule& rule) { return rule.StateWidth(1); }

void StepDense(const Kernels& kernels, const Rule& rule, std::vector<DenseParameter> parameters,
               ThreadPool* pool) {
  Rule dense = rule;
  // Dense parameters have one accumulator per element, so the rule row-wise Adagrad becomes
  // Adagrad.
  if (rule.kind == RuleKind::kRowWiseAdagrad) dense.kind = RuleKind::kAdagrad;
  parameters.erase(std::remove_if(parameters.begin(), parameters.end(),
                                  [](const DenseParameter& p) { return p.n == 0; }),
                   parameters.end());
  const int states = DenseStates(dense);
  const auto copies = SeparateGradients(states, &parameters);
  std::vector<StepConstants> constants;
  std::vector<size_t> sizes;
  for (const DenseParameter& p : parameters) {
    constants.push_back(MakeStepConstants(dense, p.input));
    sizes.push_back(p.n);
  }
  Pieces(sizes).ForEach(pool, [&](size_t, const Piece& piece) {
    const DenseParameter& p = parameters[piece.array];
    float* at[3] = {nullptr, nullptr, nullptr};
    for (int k = 0; k < states; ++k) at[k] = p.states[k] + piece.first;
    kernels.step_dense(constants[piece.array], static_cast<int>(piece.n), p.w + piece.first, at,
                       p.g + piece.first);
  });
}

double SumOfSquares(const Kernels& kernels, const std::vector<FloatSpan>& spans, ThreadPool* pool) {
  std::vector<size_t> sizes;
  for (const FloatSpan& span : spans) sizes.push_back(span.n);
  const Pieces pieces(sizes);
  std::vector<double> sums(pieces.size());
  pieces.ForEach(pool, [&](size_t p, const Piece& piece) {
    sums[p] = kernels.sum_of_squares(spans[piece.array].data + piece.first, piece.n);
  });
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace msrec
