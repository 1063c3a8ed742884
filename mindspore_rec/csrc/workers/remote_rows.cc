// SPDX-License-Identifier: Apache-2.0
#include "workers/remote_rows.h"

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>

#include "workers/row_service.h"

namespace msrec {
namespace {

void Nothing(MessageReader*) {}

}  // namespace

void RemoteRows::Ask(RowRequest what, const Write& write, const Read& read) const {
  // Each request has a separate tag, because several threads may send requests at the same time.
  static std::atomic<uint32_t> next{0};
  constexpr int kTags = Communicator::kMaxTag - RowService::kFirstReplyTag;
  const int tag = RowService::kFirstReplyTag + 1 + static_cast<int>(next++ % kTags);
  const std::string& name = table_.config().name;
  MessageWriter request;
  request.Put(static_cast<int32_t>(tag));
  request.Put(what);
  request.PutString(name);
  write(&request);
  Communicator& channel = group_.channel(Channel::kService);
  const ExchangeScope scope("rows by key", name.c_str());
  channel.Send(worker_, RowService::kRequestTag, request.message().data(),
               request.message().size());
  const WorkerMessage reply = channel.Receive(worker_, tag);
  MessageReader in(reply.data);
  const auto status = in.Take<RowReply>();
  if (status == RowReply::kDone) return read(&in);
  const std::string error = "worker " + std::to_string(worker_) + ": " + in.TakeString();
  if (status == RowReply::kInvalid) throw std::invalid_argument(error);
  throw std::runtime_error(error);
}

void RemoteRows::Get(const IdView& ids, const IdFilter& filter, bool insert, float* out) const {
  Ask(
      insert ? RowRequest::kInsert : RowRequest::kFind,
      [&](MessageWriter* request) {
        WriteIds(ids, request);
        WriteFilter(filter, request);
      },
      [&](MessageReader* reply) { reply->TakeTo(out, ids.size * table_.dim()); });
}

void RemoteRows::Put(const IdView& ids, const float* values, size_t value_rows) const {
  Ask(
      RowRequest::kPut,
      [&](MessageWriter* request) {
        WriteIds(ids, request);
        request->PutBytes(values, value_rows * table_.dim() * sizeof(float));
      },
      Nothing);
}

void RemoteRows::Import(const IdView& ids, const float* values) const {
  Ask(
      RowRequest::kImport,
      [&](MessageWriter* request) {
        WriteIds(ids, request);
        request->PutBytes(values, ids.size * table_.dim() * sizeof(float));
      },
      Nothing);
}

size_t RemoteRows::Erase(const IdView& ids) const {
  size_t erased = 0;
  Ask(
      RowRequest::kErase, [&](MessageWriter* request) { WriteIds(ids, request); },
      [&](MessageReader* reply) { erased = reply->Take<uint64_t>(); });
  return erased;
}

void RemoteRows::Contains(const IdView& ids, bool* out) const {
  Ask(
      RowRequest::kContains, [&](MessageWriter* request) { WriteIds(ids, request); },
      [&](MessageReader* reply) { reply->TakeTo(out, ids.size); });
}

size_t RemoteRows::Size() const {
  size_t size = 0;
  Ask(
      RowRequest::kSize, [](MessageWriter*) {},
      [&](MessageReader* reply) { size = reply->Take<uint64_t>(); });
  return size;
}

std::vector<int64_t> RemoteRows::Keys() const {
  std::vector<int64_t> keys;
  Ask(
      RowRequest::kKeys, [](MessageWriter*) {},
      [&](MessageReader* reply) {
        keys.resize(reply->left() / sizeof(int64_t));
        reply->TakeTo(keys.data(), keys.size());
      });
  return keys;
}

ExportedRows RemoteRows::Export(bool with_state) const {
  ExportedRows rows;
  Ask(
      RowRequest::kExport, [&](MessageWriter* request) { request->Put(with_state); },
      [&](MessageReader* reply) { rows = ReadRows(reply); });
  CheckRows(rows, with_state);
  return rows;
}

void RemoteRows::CheckRows(const ExportedRows& rows, bool with_state) const {
  const ExportedRows none = table_.ExportKeys({nullptr, 0, true}, with_state);
  if (rows.dim == none.dim && rows.state_width == none.state_width) return;
  const auto text = [](const ExportedRows& of) {
    return std::to_string(of.dim) + " and states of " + std::to_string(of.state_width);
  };
  throw std::runtime_error("worker " + std::to_string(worker_) + ": table '" +
                           table_.config().name + "' has values of " + text(rows) +
                           " numbers there and of " + text(none) +
                           " here: all workers must have bound one optimizer to it");
}

ExportedRows RemoteRows::ExportKeys(const IdView& keys, bool with_state) const {
  ExportedRows rows;
  Ask(
      RowRequest::kExportKeys,
      [&](MessageWriter* request) {
        request->Put(with_state);
        WriteIds(keys, request);
      },
      [&](MessageReader* reply) { rows = ReadRows(reply); });
  CheckRows(rows, with_state);
  if (rows.n != keys.size) {
    throw std::runtime_error("worker " + std::to_string(worker_) + " sent " +
                             std::to_string(rows.n) + " rows of " + std::to_string(keys.size) +
                             " keys");
  }
  return rows;
}

Explanation RemoteRows::Explain(int64_t key) const {
  Explanation explanation = table_.Explain(key);
  Ask(
      RowRequest::kExplain, [&](MessageWriter* request) { request->Put(key); },
      [&](MessageReader* reply) { ReadExplanation(reply, &explanation); });
  return explanation;
}

}  // namespace msrec
