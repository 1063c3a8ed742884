// SPDX-License-Identifier: Apache-2.0
#include "workers/row_messages.h"

#include <stdexcept>

namespace msrec {

void MessageReader::CheckLeft(size_t n, size_t width) const {
  if (n > left() / width) {
    throw std::runtime_error("a message of another worker is too short: it has " +
                             std::to_string(message_.size()) + " bytes");
  }
}

const char* MessageReader::TakeBytes(size_t n) {
  CheckLeft(n, 1);
  const char* const bytes = message_.data() + at_;
  at_ += n;
  return bytes;
}

std::string MessageReader::TakeString() {
  const auto size = Take<uint64_t>();
  const char* const bytes = TakeBytes(size);
  return std::string(bytes, size);
}

void MessageWriter::PutString(const std::string& text) {
  Put(static_cast<uint64_t>(text.size()));
  PutBytes(text.data(), text.size());
}

void WriteRows(const ExportedRows& rows, MessageWriter* out) {
  const size_t n = rows.n;
  out->Put(static_cast<uint64_t>(n));
  out->Put(rows.dim);
  out->Put(rows.state_width);
  out->PutBytes(rows.keys.get(), n * sizeof(int64_t));
  out->PutBytes(rows.values.get(), n * rows.dim * sizeof(float));
  out->PutBytes(rows.states.get(), n * rows.state_width * sizeof(float));
  out->PutBytes(rows.counts.get(), n * sizeof(uint32_t));
  out->PutBytes(rows.last_steps.get(), n * sizeof(uint32_t));
  out->PutBytes(rows.last_times.get(), n * sizeof(uint32_t));
  out->PutBytes(rows.present.get(), n * sizeof(bool));
}

ExportedRows ReadRows(MessageReader* in) {
  ExportedRows rows;
  rows.n = in->Take<uint64_t>();
  rows.dim = in->Take<int32_t>();
  rows.state_width = in->Take<int32_t>();
  rows.keys = in->TakeArray<int64_t>(rows.n);
  rows.values = in->TakeArray<float>(rows.n * rows.dim);
  rows.states = in->TakeArray<float>(rows.n * rows.state_width);
  rows.counts = in->TakeArray<uint32_t>(rows.n);
  rows.last_steps = in->TakeArray<uint32_t>(rows.n);
  rows.last_times = in->TakeArray<uint32_t>(rows.n);
  rows.present = in->TakeArray<bool>(rows.n);
  return rows;
}

}  // namespace msrec
