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

void WriteIds(const IdView& ids, MessageWriter* out) {
  out->Put(static_cast<uint64_t>(ids.size));
  out->PutBytes(ids.data, ids.size * sizeof(int64_t));
}

std::vector<int64_t> ReadIds(MessageReader* in) {
  const auto n = in->Take<uint64_t>();
  in->CheckLeft(n, sizeof(int64_t));
  std::vector<int64_t> ids(n);
  in->TakeTo(ids.data(), n);
  return ids;
}

void WriteFilter(const IdFilter& filter, MessageWriter* out) {
  out->Put(filter.has_padding);
  out->Put(filter.padding_key);
  out->Put(filter.coefficient);
}

IdFilter ReadFilter(MessageReader* in) {
  IdFilter filter;
  filter.has_padding = in->Take<bool>();
  filter.padding_key = in->Take<int64_t>();
  filter.coefficient = in->Take<uint32_t>();
  return filter;
}

void WriteRows(const ExportedRows& rows, MessageWriter* out) {
  out->Put(static_cast<uint64_t>(rows.n));
  out->Put(rows.dim);
  out->Put(rows.state_width);
  ForEachArray(rows, [&](const auto& array, size_t width) {
    out->PutBytes(array.get(), rows.n * width * sizeof(array[0]));
  });
}

ExportedRows ReadRows(MessageReader* in) {
  ExportedRows rows;
  rows.n = in->Take<uint64_t>();
  rows.dim = in->Take<int32_t>();
  rows.state_width = in->Take<int32_t>();
  ForEachArray(rows, [&](auto& array, size_t width) {
    using T = std::remove_reference_t<decltype(array[0])>;
    array = in->TakeArray<T>(rows.n * width);
  });
  return rows;
}

}  // namespace msrec
