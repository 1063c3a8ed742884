// SPDX-License-Identifier: Apache-2.0
#include "rows/kept_events.h"

#include <algorithm>
#include <cstddef>

namespace msrec {
namespace {

constexpr int kHighBits = 22;
constexpr int kLowBits = 21;
constexpr int kWords = 3;

uint64_t Whole(float word, int bits) {
  const auto limit = static_cast<float>(1 << bits);
  return word >= 0 && word < limit ? static_cast<uint64_t>(word) : 0;
}

int64_t Unpacked(const float* words) {
  const uint64_t high = Whole(words[0], kHighBits) << (2 * kLowBits);
  return static_cast<int64_t>(high | Whole(words[1], kLowBits) << kLowBits |
                              Whole(words[2], kLowBits));
}

void Pack(int64_t value, float* words) {
  const auto bits = static_cast<uint64_t>(value);
  constexpr uint64_t kLow = (uint64_t{1} << kLowBits) - 1;
  words[0] = static_cast<float>(bits >> (2 * kLowBits));
  words[1] = static_cast<float>(bits >> kLowBits & kLow);
  words[2] = static_cast<float>(bits & kLow);
}

// The events of one user while a batch is processed; `numbers` contains the time and the values of
// each event.
class Events {
 public:
  void Read(const KeptLayout& layout, const float* row) {
    step_ = 1 + layout.width;
    const size_t most = layout.capacity();
    const size_t count = std::min(most, static_cast<size_t>(Whole(row[0], kHighBits)));
    numbers_.resize(count * step_);
    for (size_t i = 0; i < numbers_.size(); ++i) numbers_[i] = Unpacked(row + 1 + kWords * i);
  }

  void Write(const KeptLayout& layout, float* row) const {
    std::fill(row, row + layout.dim(), 0.0f);
    row[0] = static_cast<float>(size());
    for (size_t i = 0; i < numbers_.size(); ++i) Pack(numbers_[i], row + 1 + kWords * i);
  }

  size_t size() const { return numbers_.size() / step_; }
  int64_t time(size_t event) const { return numbers_[event * step_]; }
  const int64_t* values(size_t event) const { return numbers_.data() + event * step_ + 1; }
  void Clear() { numbers_.clear(); }

  // Return the number of events before a time.
  size_t Before(int64_t time) const {
    size_t end = size();
    while (end > 0 && this->time(end - 1) >= time) --end;
    return end;
  }

  void Add(size_t length, int64_t time, const int64_t* values) {
    size_t place = size();
    while (place > 0 && this->time(place - 1) > time) --place;
    const auto at = static_cast<std::ptrdiff_t>(place * step_);
    numbers_.insert(numbers_.begin() + at, step_, time);
    std::copy(values, values + step_ - 1, numbers_.begin() + at + 1);
    const size_t older = Before(this->time(size() - 1));
    Erase(older, size() - older > length ? size() - older - length : 0);
    Erase(0, older > length ? older - length : 0);
  }

 private:
  void Erase(size_t first, size_t count) {
    const auto from = numbers_.begin() + static_cast<std::ptrdiff_t>(first * step_);
    numbers_.erase(from, from + static_cast<std::ptrdiff_t>(count * step_));
  }

  std::vector<int64_t> numbers_;
  size_t step_ = 1;
};

}  // namespace

EventLists KeepEvents(const KeptLayout& layout, float* rows, size_t num_rows, const UserRows& batch,
                      int64_t idle_seconds, int64_t* clock) {
  std::vector<Events> users(num_rows);
  for (size_t u = 0; u < num_rows; ++u) users[u].Read(layout, rows + u * layout.dim());
  EventLists lists;
  lists.offsets.reserve(batch.size + 1);
  lists.offsets.push_back(0);
  for (size_t i = 0; i < batch.size; ++i) {
    const int64_t time = batch.times[i];
    *clock = std::max(*clock, time);
    if (batch.user[i] >= 0) {
      Events& events = users[static_cast<size_t>(batch.user[i])];
      if (idle_seconds > 0 && events.size() > 0) {
        // The subtraction is unsigned, because the difference of two int64 can be out of range. In
        // a row that KeepEvents did not write, the newest event may be later than the clock.
        const int64_t newest = events.time(events.size() - 1);
        const uint64_t idle = static_cast<uint64_t>(*clock) - static_cast<uint64_t>(newest);
        if (newest < *clock && idle > static_cast<uint64_t>(idle_seconds)) events.Clear();
      }
      const size_t end = events.Before(time);
      const size_t begin = end > layout.length ? end - layout.length : 0;
      for (size_t e = begin; e < end; ++e) {
        lists.times.push_back(events.time(e));
        lists.values.insert(lists.values.end(), events.values(e), events.values(e) + layout.width);
      }
      if (batch.is_event[i] != 0) {
        events.Add(layout.length, time, batch.values + i * layout.width);
      }
    }
    lists.offsets.push_back(static_cast<int64_t>(lists.times.size()));
  }
  for (size_t u = 0; u < num_rows; ++u) users[u].Write(layout, rows + u * layout.dim());
  return lists;
}

}  // namespace msrec
