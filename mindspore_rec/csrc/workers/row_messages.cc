// SPDX-License-Identifier: Apache-2.0
#include "workers/row_messages.h"

#include <stdexcept>

namespace msrec {
namespace {

std::runtime_error Wrong(const std::string& what) {
  return std::runtime_error("a message of another worker has " + what +
                            ": do all workers run one version?");
}

}  // namespace

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

bool MessageReader::TakeBool() {
  const auto byte = Take<uint8_t>();
  if (byte > 1) throw Wrong("a truth value of " + std::to_string(byte));
  return byte == 1;
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
  filter.has_padding = in->TakeBool();
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
  if (rows.dim < 0 || rows.state_width < 0) {
    throw Wrong("rows of " + std::to_string(rows.dim) + " and " + std::to_string(rows.state_width) +
                " numbers");
  }
  ForEachArray(rows, [&](auto& array, size_t width) {
    using T = std::remove_reference_t<decltype(array[0])>;
    if (width != 0) in->CheckLeft(rows.n, width * sizeof(T));  // the product below is then small
    if constexpr (std::is_same_v<T, bool>) {
      array.reset(new bool[rows.n]);
      for (size_t i = 0; i < rows.n; ++i) array[i] = in->TakeBool();
    } else {
      array = in->TakeArray<T>(rows.n * width);
    }
  });
  return rows;
}

void WriteExplanation(const Explanation& explanation, MessageWriter* out) {
  out->Put(explanation.present);
  out->PutString(explanation.tier);
  out->Put(explanation.trained);
  out->Put(explanation.count);
  out->Put(explanation.last_step);
  out->Put(explanation.last_time);
  out->Put(explanation.norm);
  out->Put(explanation.score);
  out->Put(explanation.evicted.key);
  out->Put(explanation.evicted.step);
  out->Put(explanation.evicted.time);
  out->Put(explanation.evicted.reason);
  out->Put(explanation.step);
  out->Put(explanation.time);
}

void ReadExplanation(MessageReader* in, Explanation* explanation) {
  explanation->present = in->TakeBool();
  explanation->tier = in->TakeString();
  explanation->trained = in->TakeBool();
  explanation->count = in->Take<uint32_t>();
  explanation->last_step = in->Take<int64_t>();
  explanation->last_time = in->Take<int64_t>();
  explanation->norm = in->Take<double>();
  explanation->score = in->Take<double>();
  explanation->evicted.key = in->Take<int64_t>();
  explanation->evicted.step = in->Take<int64_t>();
  explanation->evicted.time = in->Take<uint32_t>();
  const auto reason = in->Take<uint8_t>();
  if (reason > static_cast<uint8_t>(EvictionReason::kNorm)) {
    throw Wrong("an unknown reason of an eviction");
  }
  explanation->evicted.reason = static_cast<EvictionReason>(reason);
  explanation->step = in->Take<int64_t>();
  explanation->time = in->Take<uint32_t>();
}

}  // namespace msrec
