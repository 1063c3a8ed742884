// SPDX-License-Identifier: Apache-2.0
//
// Messages that another worker would not send: of another version, of a table with another
// optimizer, or damaged. Whoever gets one throws, with the others of a collective call, or does
// what the message says; and the next operation works. Sanitizers see the rest.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <utility>

#include "worker_testing.h"
#include "workers/remote_rows.h"
#include "workers/row_service.h"

namespace msrec {
namespace {

constexpr int kDim = 3;
constexpr double kLimit = 30.0;  // seconds that a worker waits for another one

// Number of messages: few where each run of CI draws others, many in a nightly run.
int Rounds(int few) { return std::getenv("MINDSPORE_REC_NIGHTLY") != nullptr ? 50 * few : few; }

// Another seed each time, which a failure prints.
uint64_t Seed() {
  static const uint64_t seed = std::random_device{}();
  return seed;
}

using Random = std::mt19937_64;

// Changes some bytes of a message, or numbers in it, or, where it may, its length.
void Change(Random* random, bool length, std::string* message) {
  static const uint64_t kNumbers[] = {
      0,          1,          2,          3,          0x7f,
      0xff,       0xffffffff, 1ull << 31, 1ull << 32, 1ull << 60,
      1ull << 61, 1ull << 62, 1ull << 63, ~0ull,      (1ull << 61) + 1};
  for (uint64_t n = 1 + (*random)() % 3; n > 0; --n) {
    const size_t size = message->size();
    const size_t at = (*random)() % (size + 1);
    switch ((*random)() % (length ? 5 : 3)) {
      case 0:
        if (at < size) (*message)[at] ^= static_cast<char>(1 << (*random)() % 8);
        break;
      case 1:
        if (at < size) (*message)[at] = static_cast<char>((*random)());
        break;
      case 2: {
        const uint64_t number = kNumbers[(*random)() % std::size(kNumbers)];
        const size_t place = at / 4 * 4;  // where numbers are
        const size_t bytes =
            std::min<size_t>((*random)() % 2 ? 8 : 4, size - std::min(size, place));
        std::memcpy(&(*message)[place], &number, bytes);
        break;
      }
      case 3:
        message->resize(at);
        break;
      default:
        message->append((*random)() % 40, static_cast<char>((*random)()));
    }
  }
}

// Sends all through another channel, after `change` has had the message of the nth collective call.
class ChangedChannel final : public Communicator {
 public:
  explicit ChangedChannel(std::unique_ptr<Communicator> inner)
      : Communicator(inner->rank(), inner->size(), inner->name()), inner_(std::move(inner)) {}

  void ChangeNth(int nth, std::function<void(std::string*)> change) {
    left_ = nth;
    change_ = std::move(change);
  }

 private:
  void DoAllToAllV(const char* send, const size_t* send_bytes, char* recv,
                   const size_t* recv_bytes) override {
    size_t bytes = 0;
    for (int r = 0; r < size(); ++r) bytes += send_bytes[r];
    std::string message(send, bytes);
    if (change_ && left_-- == 0) {
      change_(&message);
      message.resize(bytes);
    }
    inner_->AllToAllV(message.data(), send_bytes, recv, recv_bytes);
  }
  void DoAllGatherV(const char* mine, char* all, const size_t* all_bytes) override {
    inner_->AllGatherV(mine, all, all_bytes);
  }
  void DoBarrier() override { inner_->Barrier(); }
  void DoGiveUp(const char* why) override { inner_->GiveUp(why); }
  void DoSend(int to, int tag, const char* data, size_t bytes) override {
    inner_->Send(to, tag, data, bytes);
  }
  std::optional<WorkerMessage> DoTryReceive(int from, int tag) override {
    return inner_->TryReceive(from, tag);
  }

  const std::unique_ptr<Communicator> inner_;
  std::function<void(std::string*)> change_;
  int left_ = 0;
};

TableConfig ConfigOf(int rank) {
  TableConfig config = NormalConfig("t", kDim);
  config.placement = {PlacementKind::kSharded, 2, static_cast<uint32_t>(rank), 0};
  return config;
}

std::vector<int64_t> SomeKeys(Random* random) {
  std::vector<int64_t> keys((*random)() % 8);
  for (int64_t& key : keys) key = static_cast<int64_t>((*random)() % 50) - 5;
  return keys;
}

IdView View(const std::vector<int64_t>& keys) { return {keys.data(), keys.size(), true}; }

// A request as a worker sends it.
std::string Request(RowRequest what, int32_t tag, Random* random) {
  MessageWriter out;
  out.Put(tag);
  out.Put(what);
  out.PutString("t");
  const std::vector<int64_t> keys = SomeKeys(random);
  const std::vector<float> values(keys.size() * kDim, 0.5f);
  switch (what) {
    case RowRequest::kFind:
    case RowRequest::kInsert:
      WriteIds(View(keys), &out);
      WriteFilter({}, &out);
      break;
    case RowRequest::kPut:
    case RowRequest::kImport:
      WriteIds(View(keys), &out);
      out.PutBytes(values.data(), values.size() * sizeof(float));
      break;
    case RowRequest::kErase:
    case RowRequest::kContains:
      WriteIds(View(keys), &out);
      break;
    case RowRequest::kExport:
      out.Put(true);
      break;
    case RowRequest::kExportKeys:
      out.Put((*random)() % 2 == 0);
      WriteIds(View(keys), &out);
      break;
    case RowRequest::kExplain:
      out.Put(int64_t{7});
      break;
    case RowRequest::kSize:
    case RowRequest::kKeys:
      break;
  }
  return out.message();
}

constexpr int kRequests = static_cast<int>(RowRequest::kExplain) + 1;

TEST(HostileMessages, AServiceAnswersWhateverIsAsked) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  Random random(Seed());
  const auto groups = MakeThreadGroups(2, kLimit);
  const auto table = std::make_shared<Table>(ConfigOf(1));
  table->BindOptimizer(RuleOf(RuleKind::kAdam));
  // A name that is not known is waited for: here all are known.
  const RowService service(groups[1].get(), [&](const std::string&) { return table; });
  Table mine(ConfigOf(0));
  mine.BindOptimizer(RuleOf(RuleKind::kAdam));
  const RemoteRows rows(mine, groups[0].get(), 1);
  Communicator& channel = groups[0]->channel(Channel::kService);
  for (int round = 0; round < Rounds(400); ++round) {
    const auto what = static_cast<RowRequest>(random() % kRequests);
    std::string message = Request(what, 0, &random);
    Change(&random, true, &message);
    // A tag that a reply has, but no other one soon, or one that none has.
    const int32_t tags[] = {Communicator::kMaxTag,
                            Communicator::kMaxTag,
                            Communicator::kMaxTag + 1,
                            RowService::kRequestTag,
                            -1,
                            static_cast<int32_t>(random() % 8000)};
    const int32_t tag = tags[random() % std::size(tags)];
    if (message.size() >= sizeof tag) std::memcpy(&message[0], &tag, sizeof tag);
    channel.Send(1, RowService::kRequestTag, message.data(), message.size());
    // It still answers, and has answered only whom it was asked by.
    if (round % 4 == 0) {
      const size_t said = rows.Size();  // after it has done all before
      ASSERT_EQ(said, table->Size());
    }
    for (const int reply : {RowService::kFirstReplyTag + 0, Communicator::kMaxTag + 0}) {
      while (channel.TryReceive(1, reply)) {
      }
    }
    ASSERT_FALSE(channel.TryReceive(1, RowService::kRequestTag));
  }
}

TEST(HostileMessages, WhoeverAskedReadsAReplyOrThrows) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  Random random(Seed());
  const auto groups = MakeThreadGroups(2, kLimit);
  // Between two services: the true one answers on a group of its own.
  const auto true_groups = MakeThreadGroups(2, kLimit);
  const auto table = std::make_shared<Table>(ConfigOf(1));
  table->BindOptimizer(RuleOf(RuleKind::kAdam));
  const RowService service(true_groups[1].get(), [&](const std::string&) { return table; });
  std::atomic<bool> stop{false};
  std::thread between([&] {
    Random own(Seed() + 1);
    Communicator& asked = groups[1]->channel(Channel::kService);
    Communicator& asks = true_groups[0]->channel(Channel::kService);
    while (!stop) {
      const auto request = asked.TryReceive(0, RowService::kRequestTag);
      if (!request) {
        std::this_thread::yield();
        continue;
      }
      int32_t tag = 0;
      std::memcpy(&tag, request->data.data(), sizeof tag);
      asks.Send(1, RowService::kRequestTag, request->data.data(), request->data.size());
      std::string reply = asks.Receive(1, tag).data;
      Change(&own, true, &reply);
      asked.Send(0, tag, reply.data(), reply.size());
    }
  });
  Table mine(ConfigOf(0));
  mine.BindOptimizer(RuleOf(RuleKind::kAdam));
  const RemoteRows rows(mine, groups[0].get(), 1);
  int thrown = 0;
  for (int round = 0; round < Rounds(300); ++round) {
    const std::vector<int64_t> keys = SomeKeys(&random);
    std::vector<float> values(keys.size() * kDim, 0.25f);
    const std::unique_ptr<bool[]> found(new bool[keys.size()]);
    try {
      switch (random() % 8) {
        case 0:
          rows.Get(View(keys), {}, true, values.data());
          break;
        case 1:
          rows.Put(View(keys), values.data(), keys.size());
          break;
        case 2:
          rows.Erase(View(keys));
          break;
        case 3:
          rows.Contains(View(keys), found.get());
          for (size_t i = 0; i < keys.size(); ++i) thrown += found[i] ? 0 : 0;  // reads each
          break;
        case 4:
          rows.Keys();
          break;
        case 5: {
          const ExportedRows all = rows.Export(true);
          for (size_t i = 0; i < all.n; ++i) thrown += all.present[i] ? 0 : 0;
          break;
        }
        case 6:
          ASSERT_EQ(rows.ExportKeys(View(keys), random() % 2 == 0).n, keys.size());
          break;
        default:
          rows.Explain(3);
      }
    } catch (const std::exception&) {
      ++thrown;
    }
  }
  stop = true;
  between.join();
  EXPECT_GT(thrown, 10);
}

TEST(HostileMessages, RowsOfATableWithAnotherOptimizerAreRefused) {
  const auto groups = MakeThreadGroups(2, kLimit);
  const auto table = std::make_shared<Table>(ConfigOf(1));  // not bound yet
  const std::vector<int64_t> keys{1, 2, 3};
  table->Put(View(keys), std::vector<float>(keys.size() * kDim).data(), keys.size());
  const RowService service(groups[1].get(), [&](const std::string&) { return table; });
  Table mine(ConfigOf(0));
  mine.BindOptimizer(RuleOf(RuleKind::kAdam));
  const RemoteRows rows(mine, groups[0].get(), 1);
  EXPECT_THROW(rows.Export(true), std::runtime_error);
  EXPECT_THROW(rows.ExportKeys(View(keys), true), std::runtime_error);
  EXPECT_EQ(rows.Export(false).n, keys.size());
}

// Keys to owners, rows back, gradients to owners: one message of worker 1 is another one.
TEST(HostileMessages, AStepIsDoneByAllOrRefusedByAll) {
  SCOPED_TRACE("seed " + std::to_string(Seed()));
  Random random(Seed());
  int refused = 0;
  for (int round = 0; round < Rounds(120); ++round) {
    std::vector<std::vector<std::unique_ptr<Communicator>>> channels(2);
    ChangedChannel* changed = nullptr;
    for (const char* name : kChannelNames) {
      auto made = MakeThreadChannel(2, name, kLimit);
      channels[0].push_back(std::move(made[0]));
      auto other = std::make_unique<ChangedChannel>(std::move(made[1]));
      if (changed == nullptr) changed = other.get();  // of the first channel, that of steps
      channels[1].push_back(std::move(other));
    }
    std::vector<std::unique_ptr<WorkerGroup>> groups;
    std::vector<std::unique_ptr<TableExchange>> exchanges;
    std::vector<std::unique_ptr<ShardedTable>> tables;
    for (int r = 0; r < 2; ++r) {
      groups.push_back(std::make_unique<WorkerGroup>(std::move(channels[r])));
      exchanges.push_back(std::make_unique<TableExchange>(groups[r].get()));
      auto table = std::make_shared<Table>(ConfigOf(r));
      table->BindOptimizer(RuleOf(RuleKind::kAdagrad));
      tables.push_back(std::make_unique<ShardedTable>(exchanges[r].get(), table));
    }
    // Begin and Exchange are two calls, of which the first has the headers, which are compared.
    // Lookup: 1 keys, 2 rows. Gradients: 4.
    const int nth = std::array{1, 1, 2, 4}[random() % 4];
    const uint64_t seed = random();
    changed->ChangeNth(nth, [seed](std::string* message) {
      Random own(seed);
      Change(&own, false, message);
    });
    std::vector<int64_t> keys(2 + random() % 30);
    for (int64_t& key : keys) key = static_cast<int64_t>(random() % 100);
    const auto step = [&](int r) {
      std::vector<float> rows(keys.size() * kDim);
      const int64_t ticket = tables[r]->LookupTrain(View(keys), {}, rows.data());
      tables[r]->Accumulate(ticket, rows.data(), keys.size());
      ExchangeGradients({tables[r].get()}, {false});
    };
    const std::vector<std::string> errors = OnThreads(2, step);
    EXPECT_EQ(errors[0].empty(), errors[1].empty()) << errors[0] << errors[1];
    refused += !errors[0].empty();
    // One key more or less in a message of the same size is a message that was meant: rows that
    // come back are then not as many as are waited for, and the channel is given up.
    const bool given_up = (errors[0] + errors[1]).find("given up") != std::string::npos;
    for (const std::string& error : OnThreads(2, step)) {
      EXPECT_EQ(error.empty(), !given_up) << nth << ": " << errors[0] << "; " << errors[1];
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace msrec
