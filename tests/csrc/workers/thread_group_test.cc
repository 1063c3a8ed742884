// SPDX-License-Identifier: Apache-2.0
#include "workers/thread_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "on_workers.h"
#include "testing.h"

namespace msrec {
namespace {

void ExpectNoErrors(const std::vector<std::string>& errors) {
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

// Bytes that worker `from` sends to `to` in a round.
size_t PartBytes(int from, int to, int round) { return (from * 7 + to * 3 + round * 5) % 11; }
char PartByte(int from, int to, int round) { return static_cast<char>(from * 31 + to + 7 * round); }

void ExchangeRound(Communicator& c, int round) {
  std::vector<size_t> send_bytes, recv_bytes;
  std::string send, expected;
  for (int r = 0; r < c.size(); ++r) {
    send_bytes.push_back(PartBytes(c.rank(), r, round));
    recv_bytes.push_back(PartBytes(r, c.rank(), round));
    send.append(send_bytes.back(), PartByte(c.rank(), r, round));
    expected.append(recv_bytes.back(), PartByte(r, c.rank(), round));
  }
  std::string recv(expected.size(), '?');
  c.AllToAllV(send.data(), send_bytes.data(), recv.data(), recv_bytes.data());
  EXPECT_EQ(recv, expected);
}

TEST(WorkerThreads, AllToAllVBringsEachPartToItsWorker) {
  for (const int size : {1, 2, 3, 5}) {
    Channels channels = MakeThreadChannel(size, "step");
    ExpectNoErrors(OnWorkers(channels, [](Communicator& c) {
      for (int round = 0; round < 50; ++round) ExchangeRound(c, round);
    }));
    EXPECT_EQ(channels[0]->statistics().calls, 50u);
    EXPECT_EQ(channels[0]->statistics().bytes_sent > 0, size > 1);
  }
}

TEST(WorkerThreads, WhoComesAfterAWorkerGaveUpThrowsToo) {
  Channels channels = MakeThreadChannel(2, "step", 0.05);
  int all[2] = {7, 7};
  for (const auto& channel : channels) {
    const int mine = channel->rank();
    EXPECT_THROW(channel->AllGather(&mine, sizeof(mine), all), WorkerError);
  }
  EXPECT_EQ(all[0] + all[1], 14);
}

TEST(WorkerThreads, AllGatherIsInTheOrderOfRanks) {
  for (const int size : {1, 2, 4}) {
    Channels channels = MakeThreadChannel(size, "control");
    ExpectNoErrors(OnWorkers(channels, [size](Communicator& c) {
      for (int round = 0; round < 50; ++round) {
        const int64_t mine = c.rank() * 1000 + round;
        std::vector<int64_t> all(size);
        c.AllGather(&mine, sizeof(mine), all.data());
        for (int r = 0; r < size; ++r) EXPECT_EQ(all[r], r * 1000 + round);
        c.AllGather(nullptr, 0, nullptr);
        c.Barrier();
      }
    }));
  }
}

TEST(WorkerThreads, AllGatherVMayWriteAroundWhatItSends) {
  Channels channels = MakeThreadChannel(3, "step");
  ExpectNoErrors(OnWorkers(channels, [](Communicator& c) {
    const size_t bytes[] = {3, 0, 5};
    std::string all = "????????";
    const size_t mine = c.rank() == 2 ? 3 : c.rank() == 1 ? 3 : 0;
    all.replace(mine, bytes[c.rank()], std::string(bytes[c.rank()], 'a' + c.rank()));
    c.AllGatherV(&all[mine], all.data(), bytes);
    EXPECT_EQ(all, "aaaccccc");
  }));
}

TEST(WorkerThreads, GatheredBytesMayHaveAnyLength) {
  for (const int size : {1, 3}) {
    Channels channels = MakeThreadChannel(size, "control");
    ExpectNoErrors(OnWorkers(channels, [size](Communicator& c) {
      // Around the length up to which one round is enough.
      for (const int length : {0, 1, 247, 248, 249, 250, 5000}) {
        const auto text = [&](int r) { return std::string(length + 2 * r, 'a' + r); };
        const std::vector<std::string> all = GatherBytes(c, text(c.rank()));
        for (int r = 0; r < size; ++r) EXPECT_EQ(all[r], text(r));
      }
    }));
  }
}

TEST(WorkerThreads, ABarrierIsPassedWhenAllHaveCome) {
  Channels channels = MakeThreadChannel(4, "step");
  std::atomic<int> arrived{0};
  ExpectNoErrors(OnWorkers(channels, [&](Communicator& c) {
    for (int round = 1; round <= 100; ++round) {
      ++arrived;
      c.Barrier();
      EXPECT_GE(arrived.load(), round * 4);
      c.Barrier();
    }
  }));
}

TEST(WorkerThreads, MessagesOfOneSenderAndTagKeepTheirOrder) {
  Channels channels = MakeThreadChannel(3, "service");
  ExpectNoErrors(OnWorkers(channels, [](Communicator& c) {
    for (int i = 0; i < 20; ++i) {
      for (int to = 0; to < c.size(); ++to) {
        const std::string text = std::to_string(c.rank()) + ":" + std::to_string(i);
        c.Send(to, i % 2, text.data(), text.size());
      }
    }
    for (int tag : {1, 0}) {
      for (int from = 0; from < c.size(); ++from) {
        for (int i = tag; i < 20; i += 2) {
          const WorkerMessage message = c.Receive(from, tag);
          EXPECT_EQ(message.from, from);
          EXPECT_EQ(message.data, std::to_string(from) + ":" + std::to_string(i));
        }
      }
    }
    EXPECT_FALSE(c.TryReceive(Communicator::kAny, 0).has_value());
  }));
}

TEST(WorkerThreads, AWaitHasALimitAndNamesWhoIsMissing) {
  Channels channels = MakeThreadChannel(3, "step", 0.05);
  const auto errors = OnWorkers(channels, [](Communicator& c) {
    if (c.rank() == 1) return;
    const ExchangeScope outer("a step");
    const ExchangeScope scope("keys", "user");
    c.Barrier();
  });
  EXPECT_EQ(errors[1], "");
  for (const int r : {0, 2}) {
    EXPECT_EQ(errors[r], "worker " + std::to_string(r) +
                             " of 3: waited 0 s for worker 1 on channel 'step', to exchange keys "
                             "of table 'user'");
  }
}

TEST(WorkerThreads, AWaitForAMessageHasALimit) {
  Channels channels = MakeThreadChannel(2, "service", 0.02);
  EXPECT_THROW(channels[0]->Receive(1, 3), WorkerError);
  EXPECT_THROW(channels[0]->Receive(Communicator::kAny, 3), WorkerError);
}

TEST(WorkerThreads, SizesThatDifferAreAnErrorOfTheReceiver) {
  Channels channels = MakeThreadChannel(2, "step");
  const auto errors = OnWorkers(channels, [](Communicator& c) {
    const size_t send_bytes[] = {4, 4};
    const size_t recv_bytes[] = {4, c.rank() == 0 ? 3u : 4u};
    char send[8] = {}, recv[8];
    c.AllToAllV(send, send_bytes, recv, recv_bytes);
  });
  EXPECT_EQ(errors[0].rfind("worker 0 of 2: worker 1 sent another number of bytes", 0), 0u);
  EXPECT_EQ(errors[1], "");
}

TEST(WorkerThreads, WorkersAndTagsAreChecked) {
  Channels channels = MakeThreadChannel(2, "service");
  EXPECT_THROW(channels[0]->Send(2, 0, "", 0), std::invalid_argument);
  EXPECT_THROW(channels[0]->Send(-1, 0, "", 0), std::invalid_argument);
  EXPECT_THROW(channels[0]->Send(0, -1, "", 0), std::invalid_argument);
  EXPECT_THROW(channels[0]->Send(0, Communicator::kMaxTag + 1, "", 0), std::invalid_argument);
  EXPECT_THROW(channels[0]->TryReceive(2, 0), std::invalid_argument);
}

TEST(WorkerThreads, GroupsHaveAllChannelsAndTheWeightsOfTheStep) {
  auto groups = MakeThreadGroups(2);
  WorkerGroup& group = *groups[1];
  EXPECT_EQ(group.rank(), 1);
  EXPECT_EQ(group.size(), 2);
  for (size_t i = 0; i < kChannelNames.size(); ++i) {
    EXPECT_EQ(group.channel(static_cast<Channel>(i)).name(), kChannelNames[i]);
  }
  EXPECT_EQ(group.step(), -1);
  EXPECT_EQ(group.weights(), (std::vector<float>{0.5f, 0.5f}));
  group.BeginStep(7, {30, 10});
  EXPECT_EQ(group.step(), 7);
  EXPECT_EQ(group.weight(), 0.25f);
  EXPECT_FALSE(group.idle());
  group.BeginStep(8, {30, 0});
  EXPECT_EQ(group.weights(), (std::vector<float>{1.0f, 0.0f}));
  EXPECT_TRUE(group.idle());
  EXPECT_THROW(group.BeginStep(9, {1}), std::invalid_argument);
  EXPECT_THROW(group.BeginStep(9, {1, -1}), std::invalid_argument);
  EXPECT_EQ(group.step(), 8);
  group.BeginStep(10, {30, 10}, true);  // losses are sums
  EXPECT_EQ(group.weights(), (std::vector<float>{1.0f, 1.0f}));
  group.BeginStep(11, {30, 0}, true);
  EXPECT_EQ(group.weights(), (std::vector<float>{1.0f, 0.0f}));
}

TEST(WorkerThreads, AProcessHasNoGroupUnlessItIsSet) {
  EXPECT_EQ(TheGroup(), nullptr);
  auto groups = MakeThreadGroups(1);
  WorkerGroup* made = groups[0].get();
  EXPECT_EQ(SetTheGroup(std::move(groups[0])), nullptr);
  EXPECT_EQ(TheGroup(), made);
  EXPECT_EQ(SetTheGroup(nullptr).get(), made);
}

}  // namespace
}  // namespace msrec
