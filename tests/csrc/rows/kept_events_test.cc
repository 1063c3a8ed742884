// SPDX-License-Identifier: Apache-2.0
#include "rows/kept_events.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <vector>

namespace msrec {
namespace {

struct Event {
  int64_t time;
  int64_t value;
  bool operator==(const Event& other) const { return time == other.time && value == other.value; }
};

// All events of all users, from which histories are cut.
class Model {
 public:
  Model(size_t length, int64_t idle) : length_(length), idle_(idle) {}

  std::vector<Event> Next(int64_t user, int64_t time, bool is_event, int64_t value) {
    clock_ = std::max(clock_, time);
    if (user < 0) return {};
    std::vector<Event>& events = users_[user];
    if (idle_ > 0 && !events.empty() && clock_ - events.back().time > idle_) events.clear();
    std::vector<Event> before;
    for (const Event& each : events) {
      if (each.time < time) before.push_back(each);
    }
    if (before.size() > length_) before.erase(before.begin(), before.end() - length_);
    if (is_event) {
      const auto later = [](int64_t t, const Event& e) { return t < e.time; };
      events.insert(std::upper_bound(events.begin(), events.end(), time, later), {time, value});
      Cut(&events);
    }
    return before;
  }

 private:
  void Cut(std::vector<Event>* events) const {
    std::vector<Event> older;
    std::vector<Event> newest;
    for (const Event& each : *events) {
      (each.time == events->back().time ? newest : older).push_back(each);
    }
    for (std::vector<Event>* part : {&older, &newest}) {
      if (part->size() > length_) part->erase(part->begin(), part->end() - length_);
    }
    *events = older;
    events->insert(events->end(), newest.begin(), newest.end());
  }

  size_t length_;
  int64_t idle_;
  int64_t clock_ = 0;
  std::map<int64_t, std::vector<Event>> users_;
};

TEST(KeptEventsTest, EqualTheModelInBatchesOfAnySize) {
  constexpr int64_t kUsers = 3;
  const int64_t hard[] = {0, -1, std::numeric_limits<int64_t>::max(),
                          std::numeric_limits<int64_t>::min(), int64_t{1} << 42};
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const KeptLayout layout{1 + random() % 4, 1};
    const int64_t idle = seed % 3 == 0 ? 6 : 0;
    std::vector<float> rows(kUsers * layout.dim());
    Model model(layout.length, idle);
    int64_t clock = 0;
    int64_t now = 1;
    for (int batch = 0; batch < 20; ++batch) {
      const size_t size = random() % 8;
      std::vector<int64_t> users;
      std::vector<int64_t> times;
      std::vector<int64_t> values;
      std::vector<uint8_t> are_events;
      for (size_t i = 0; i < size; ++i) {
        now += static_cast<int64_t>(random() % 3);
        users.push_back(static_cast<int64_t>(random() % (kUsers + 1)) - 1);
        times.push_back(std::max<int64_t>(1, now - static_cast<int64_t>(random() % 4)));
        values.push_back(random() % 2 == 0 ? hard[random() % 5] : static_cast<int64_t>(random()));
        are_events.push_back(random() % 4 != 0);
      }
      const UserRows of_batch{size, users.data(), times.data(), are_events.data(), values.data()};
      const EventLists lists = KeepEvents(layout, rows.data(), kUsers, of_batch, idle, &clock);
      ASSERT_EQ(lists.offsets.size(), size + 1);
      for (size_t i = 0; i < size; ++i) {
        std::vector<Event> found;
        for (int64_t e = lists.offsets[i]; e < lists.offsets[i + 1]; ++e) {
          found.push_back({lists.times[e], lists.values[e]});
        }
        ASSERT_EQ(found, model.Next(users[i], times[i], are_events[i] != 0, values[i]))
            << "seed " << seed << ", batch " << batch << ", row " << i;
      }
      for (const float word : rows) {
        ASSERT_TRUE(word >= 0 && word < 4194304 && word == static_cast<float>(int(word)));
      }
    }
  }
}

// Rows of a row in a time before all of its events, and of the extreme times, are legal.
TEST(KeptEventsTest, TimesMayBeAnyNumber) {
  const KeptLayout layout{2, 1};
  std::vector<float> rows(layout.dim());
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const int64_t users[] = {0, 0, 0};
  const int64_t times[] = {kMost, kLeast, kMost};
  const uint8_t are_events[] = {1, 1, 0};
  const int64_t values[] = {1, 2, 3};
  int64_t clock = 0;
  const EventLists lists =
      KeepEvents(layout, rows.data(), 1, {3, users, times, are_events, values}, 5, &clock);
  EXPECT_EQ(lists.offsets, (std::vector<int64_t>{0, 0, 0, 1}));
  EXPECT_EQ(lists.values, std::vector<int64_t>{2});
  EXPECT_EQ(clock, kMost);
}

}  // namespace
}  // namespace msrec
