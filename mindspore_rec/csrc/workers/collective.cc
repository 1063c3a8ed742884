// SPDX-License-Identifier: Apache-2.0
#include "workers/collective.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "util/hash.h"

namespace msrec {
namespace {

constexpr size_t kMessageBytes = 512;

// Copy text, cut to fit, with a 0 at its end.
void CopyText(const std::string& text, char* to, size_t bytes) {
  const size_t n = std::min(text.size(), bytes - 1);
  std::memcpy(to, text.data(), n);
  std::memset(to + n, 0, bytes - n);
}

std::string MessageOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace

struct Collective::Header {
  uint64_t operation;
  int64_t step;
  uint64_t hash;  // of the whole name
  uint64_t status;
  uint64_t bytes;
  uint64_t most;  // the most bytes that any worker gets
  uint64_t room;  // bytes that this worker can receive without making room
  char name[72];  // the beginning of it
};

Collective::Collective(TableExchange* exchange, std::string operation)
    : exchange_(exchange),
      lock_(exchange->mutex),
      operation_(std::move(operation)),
      scope_(operation_.c_str()),
      channel_(exchange->group->channel(exchange->through)) {}

void Collective::Begin(const std::vector<size_t>& send_bytes) {
  Header mine{};
  mine.operation = exchange_->operations;
  mine.step = group().step();
  mine.hash = HashBytes(operation_.data(), operation_.size());
  mine.status = failed() ? 1 : 0;
  mine.room = exchange_->recv.bytes();
  CopyText(operation_, mine.name, sizeof(mine.name));
  sent_.assign(size(), 0);
  std::vector<Header> headers(size(), mine);
  for (int r = 0; r < size(); ++r) {
    if (!failed()) sent_[r] = send_bytes[r];
    headers[r].bytes = sent_[r];
    mine.most = std::max<uint64_t>(mine.most, sent_[r]);
  }
  for (Header& header : headers) header.most = mine.most;
  const std::vector<Header> mine_to_all = headers;
  const std::vector<size_t> bytes(size(), sizeof(Header));
  channel_.AllToAllV(mine_to_all.data(), bytes.data(), headers.data(), bytes.data());
  RequireSame(headers);
  ++exchange_->operations;
  received_.assign(size(), 0);
  std::vector<uint64_t> statuses(size());
  uint64_t most = 0;  // that anybody may receive
  uint64_t least_room = headers[0].room;
  for (int r = 0; r < size(); ++r) {
    statuses[r] = headers[r].status;
    received_[r] = headers[r].bytes;
    most += headers[r].most;
    least_room = std::min(least_room, headers[r].room);
  }
  if (std::accumulate(statuses.begin(), statuses.end(), uint64_t{0}) > 0) Fail(statuses);
  if (least_room >= most) return;
  // With some more, so that exchanges of about this size need not agree again. All know that one of
  // them makes room, and wait to hear whether it could.
  Try([&] { exchange_->recv.Reset(most + most / 4); });
  Agree();
}

void Collective::RequireSame(const std::vector<Header>& headers) const {
  const auto text = [&](int r) {
    const Header& header = headers[r];
    return "worker " + std::to_string(r) + " is at the " + header.name + " (operation " +
           std::to_string(header.operation) + ", step " + std::to_string(header.step) + ")";
  };
  for (int r = 0; r < size(); ++r) {
    const Header& other = headers[r];
    const Header& mine = headers[rank()];
    if (other.operation == mine.operation && other.step == mine.step && other.hash == mine.hash) {
      continue;
    }
    throw WorkerError("workers do different things: " + text(rank()) + ", " + text(r) +
                      "; all must run the same network for the same number of steps");
  }
}

size_t Collective::received() const {
  return std::accumulate(received_.begin(), received_.end(), size_t{0});
}

void Collective::Exchange(const void* send, void* recv) { Exchange(send, sent_, recv, received_); }

void Collective::Exchange(const void* send, const std::vector<size_t>& send_bytes, void* recv,
                          const std::vector<size_t>& recv_bytes) {
  channel_.AllToAllV(send, send_bytes.data(), recv, recv_bytes.data());
}

void Collective::Agree() {
  const uint64_t mine = failed() ? 1 : 0;
  std::vector<uint64_t> statuses(size());
  channel_.AllGather(&mine, sizeof(mine), statuses.data());
  if (std::accumulate(statuses.begin(), statuses.end(), uint64_t{0}) > 0) Fail(statuses);
}

void Collective::Fail(const std::vector<uint64_t>& statuses) {
  char mine[kMessageBytes] = {};
  if (failed()) CopyText(MessageOf(error_), mine, sizeof(mine));
  std::vector<char> all(size() * kMessageBytes);
  channel_.AllGather(mine, sizeof(mine), all.data());
  if (failed()) std::rethrow_exception(error_);
  int failing = 0;
  while (statuses[failing] == 0) ++failing;
  throw OtherWorkerFailed("worker " + std::to_string(failing) + ": " +
                          &all[failing * kMessageBytes]);
}

}  // namespace msrec
