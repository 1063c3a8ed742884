// SPDX-License-Identifier: Apache-2.0
//
// Addresses of the values, gradients and factors of one slice of a dense program's batch.
#include <algorithm>
#include <stdexcept>

#include "dense/program.h"
#include "util/aligned.h"

namespace msrec {

void* DenseProgram::At(const BatchRun& run, int64_t slice, float* scratch,
                       const Place& place) const {
  const size_t row_bytes = static_cast<size_t>(place.ld) * place.element;
  const size_t first_byte = static_cast<size_t>(slice * run.slice_rows) * row_bytes;
  if (float* given = ElementOrNull(run.given, static_cast<size_t>(place.given));
      given != nullptr && (slice + 1) * run.slice_rows <= run.batch) {
    return reinterpret_cast<char*>(given) + first_byte;
  }
  float* base = nullptr;
  switch (place.area) {
    case Area::kNone:
      throw std::logic_error("a dense program has no memory for a matrix that a layer uses");
    case Area::kScratch:
      return scratch + place.column * run.slice_rows;
    case Area::kBrief:
      return scratch + (run.saved != nullptr ? 0 : saved_width_ * run.slice_rows);
    case Area::kSaved:
      if (run.saved == nullptr) return scratch + place.column * run.slice_rows;
      base = run.saved;
      break;
    case Area::kGradients:
      base = run.gradients;
  }
  return reinterpret_cast<char*>(base + place.column * run.padded()) + first_byte;
}

int64_t SliceRun::real_rows() const {
  return std::clamp<int64_t>(run_.batch - first_row(), 0, rows());
}

Block SliceRun::BlockAt(const Place& place, int64_t column) const {
  auto* data = static_cast<float*>(run_.program->At(run_, slice_, scratch_, place));
  return {data + column, place.ld};
}

Factor SliceRun::FactorAt(const Place& place, int64_t column) const {
  auto* data = static_cast<char*>(run_.program->At(run_, slice_, scratch_, place));
  return {data + static_cast<size_t>(column) * place.element, place.ld};
}

Block SliceRun::value(const View& view) const { return BlockAt(value_of(view).value, view.offset); }

Block SliceRun::gradient(const View& view) const {
  return BlockAt(value_of(view).gradient, view.offset);
}

Factor SliceRun::factor(const View& view) const {
  return FactorAt(factor_place(view), view.offset);
}

Factor SliceRun::gradient_factor(const View& view) const {
  return FactorAt(gradient_factor_place(view), view.offset);
}

const DenseProgram::Value& SliceRun::value_of(const View& view) const {
  return run_.program->values_[view.value];
}

const DenseProgram::Place& SliceRun::factor_place(const View& view) const {
  const bool rounds = run_.program->precision_ != Precision::kFloat32;
  return rounds ? value_of(view).rounded : value_of(view).value;
}

const DenseProgram::Place& SliceRun::gradient_factor_place(const View& view) const {
  const bool rounds = run_.program->precision_ != Precision::kFloat32;
  return rounds ? value_of(view).rounded_gradient : value_of(view).gradient;
}

namespace {

void Round(const Elementwise& loops, Precision precision, int64_t rows, int64_t width,
           const Block& from, const Factor& to) {
  if (precision == Precision::kBFloat16) {
    auto* data = static_cast<uint16_t*>(const_cast<void*>(to.data));
    loops.round_bfloat16(rows, width, from, data, to.ld);
  } else {
    auto* data = static_cast<float*>(const_cast<void*>(to.data));
    loops.round_to_float(rows, width, from, {data, to.ld});
  }
}

}  // namespace

bool SliceRun::only_rounded(const View& view) const { return value_of(view).only_rounded; }

void SliceRun::RoundValue(const View& view) const {
  if (run_.program->precision_ == Precision::kFloat32) return;
  Round(loops(), run_.program->precision_, rows(), view.width, value(view), factor(view));
}

void SliceRun::RoundGradient(const View& view) const {
  if (run_.program->precision_ == Precision::kFloat32) return;
  Round(loops(), run_.program->precision_, rows(), view.width, gradient(view),
        gradient_factor(view));
}

int64_t SliceRun::value_ld(const View& view) const { return value_of(view).value.ld; }

int64_t SliceRun::gradient_ld(const View& view) const { return value_of(view).gradient.ld; }

int64_t SliceRun::factor_ld(const View& view) const { return factor_place(view).ld; }

int64_t SliceRun::gradient_factor_ld(const View& view) const {
  return gradient_factor_place(view).ld;
}

float* SliceRun::Temporary(int64_t floats) const {
  if (run_.temporary != nullptr) return run_.temporary->Floats(floats);
  thread_local AlignedMemory memory;
  return static_cast<float*>(memory.AtLeast(sizeof(float) * static_cast<size_t>(floats)));
}

float* SliceRun::partial_sums(int64_t column) const {
  return run_.partial_sums + slice_ * run_.partial_width + column;
}

}  // namespace msrec
