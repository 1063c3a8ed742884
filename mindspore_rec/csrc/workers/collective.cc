// SPDX-License-Identifier: Apache-2.0
#include "workers/collective.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "util/hash.h"

namespace msrec {
namespace {

// Copy text, truncated to `bytes`, with a terminating 0.
void CopyText(const char* text, char* to, size_t bytes) {
  const size_t n = std::min(std::strlen(text), bytes - 1);
  std::memcpy(to, text, n);
  std::memset(to + n, 0, bytes - n);
}

void CopyMessage(const std::exception_ptr& error, char* to, size_t bytes) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    CopyText("out of memory", to, bytes);
  } catch (const std::exception& known) {
    CopyText(known.what(), to, bytes);
  } catch (...) {
    CopyText("an unknown error", to, bytes);
  }
}

}  // namespace

struct TableExchange::Header {
  uint64_t operation;
  int64_t step;
  uint64_t hash;  // of the whole name; of a worker that failed it may be another one's
  uint64_t status;
  uint64_t bytes;
  uint64_t most;  // the most bytes that any worker gets
  uint64_t room;  // bytes that this worker can receive without making room
  char name[72];  // the beginning of it
};

TableExchange::TableExchange(WorkerGroup* given, Channel used)
    : group(given),
      through(used),
      sent_headers(given->size()),
      headers(given->size()),
      send_bytes(given->size()),
      received_bytes(given->size()),
      header_bytes(given->size(), sizeof(Header)),
      statuses(given->size()),
      messages(given->size() * kMessageBytes) {}

TableExchange::~TableExchange() = default;

void Collective::Begin() {
  TableExchange& mine = *exchange_;
  Header header{};
  header.operation = mine.operations;
  header.step = group().step();
  header.hash = HashBytes(operation_.data(), operation_.size());
  header.status = failed() ? 1 : 0;
  header.room = mine.recv.bytes();
  CopyText(operation_.c_str(), header.name, sizeof(header.name));
  if (failed()) mine.send_bytes.assign(mine.send_bytes.size(), 0);
  header.most = *std::max_element(mine.send_bytes.begin(), mine.send_bytes.end());
  for (int r = 0; r < size(); ++r) {
    header.bytes = mine.send_bytes[r];
    mine.sent_headers[r] = header;
  }
  channel_.AllToAllV(mine.sent_headers.data(), mine.header_bytes.data(), mine.headers.data(),
                     mine.header_bytes.data());
  RequireSame();
  ++mine.operations;
  uint64_t most = 0;  // that anybody may receive
  uint64_t least_room = header.room;
  for (int r = 0; r < size(); ++r) {
    const Header& other = mine.headers[r];
    mine.statuses[r] = other.status;
    mine.received_bytes[r] = other.bytes;
    most += other.most;
    least_room = std::min(least_room, other.room);
  }
  RequireSuccess();
  if (least_room >= most) return;
  // Reserve more memory than this exchange needs, so that later exchanges of about this size call
  // Agree only once. The headers tell all workers whether any worker needs more memory than it has
  // reserved. If so, each worker calls Agree again.
  Try([&] { mine.recv.Reset(most + most / 4); });
  Agree();
}

void Collective::RequireSame() const {
  const auto text = [&](int r) {
    const Header& header = exchange_->headers[r];
    return "worker " + std::to_string(r) + " is at the " + header.name + " (operation " +
           std::to_string(header.operation) + ", step " + std::to_string(header.step) + ")";
  };
  // If a worker failed before it could determine the operation's name, only the indexes of the
  // operation and the step are compared.
  int first = 0;
  while (first + 1 < size() && exchange_->headers[first].status != 0) ++first;
  for (int r = 0; r < size(); ++r) {
    const Header& one = exchange_->headers[first];
    const Header& other = exchange_->headers[r];
    if (other.operation == one.operation && other.step == one.step &&
        (other.hash == one.hash || other.status != 0)) {
      continue;
    }
    throw WorkerError("workers do different things: " + text(first) + ", " + text(r) +
                      "; all must run the same network for the same number of steps");
  }
}

size_t Collective::received() const {
  return std::accumulate(received_bytes().begin(), received_bytes().end(), size_t{0});
}

void Collective::Exchange(const void* send, void* recv) {
  Exchange(send, exchange_->send_bytes, recv, exchange_->received_bytes);
}

void Collective::Exchange(const void* send, const std::vector<size_t>& send_bytes, void* recv,
                          const std::vector<size_t>& recv_bytes) {
  channel_.AllToAllV(send, send_bytes.data(), recv, recv_bytes.data());
}

void Collective::Agree() {
  const uint64_t mine = failed() ? 1 : 0;
  channel_.AllGather(&mine, sizeof(mine), exchange_->statuses.data());
  RequireSuccess();
}

void Collective::RequireSuccess() {
  const std::vector<uint64_t>& statuses = exchange_->statuses;
  const auto bad =
      std::find_if(statuses.begin(), statuses.end(), [](uint64_t s) { return s != 0; });
  if (bad == statuses.end()) return;
  char mine[TableExchange::kMessageBytes] = {};
  if (failed()) CopyMessage(error_, mine, sizeof(mine));
  channel_.AllGather(mine, sizeof(mine), exchange_->messages.data());
  if (failed()) std::rethrow_exception(error_);
  const size_t worker = static_cast<size_t>(bad - statuses.begin());
  throw OtherWorkerFailed("worker " + std::to_string(worker) + ": " +
                          &exchange_->messages[worker * TableExchange::kMessageBytes]);
}

}  // namespace msrec
