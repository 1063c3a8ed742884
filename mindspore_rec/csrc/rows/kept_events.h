// SPDX-License-Identifier: Apache-2.0
//
// The last events of each user, kept in a row of a table. An event is a time and `width` further
// int64 numbers, such as the key of an item. A row has float32 numbers only that are whole and
// below 2^22, so copies of a row keep every bit, whatever the float mode.
//
// A row keeps the last `length` events before its newest time, and the last `length` events of its
// newest time, oldest first. So `length` events before any time from the newest time on are known,
// also if many events have the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msrec {

struct KeptLayout {
  size_t length;  // number of events of a history
  size_t width;   // int64 numbers of an event, without its time

  size_t capacity() const { return 2 * length; }
  // Floats of a row: the number of events, and 3 for each int64 of an event.
  size_t dim() const { return 1 + capacity() * 3 * (1 + width); }
};

// A batch of rows of users. Row i is of the user rows[user[i]], at times[i]. If is_event[i], the
// row is an event with the numbers values[i * width .. (i + 1) * width).
struct UserRows {
  size_t size;
  const int64_t* user;  // index of the user's row, or -1: unknown, without history and event
  const int64_t* times;
  const uint8_t* is_event;
  const int64_t* values;  // [size, width]
};

// Lists of events: list i has the events from offsets[i] to offsets[i + 1] - 1.
struct EventLists {
  std::vector<int64_t> offsets;
  std::vector<int64_t> times;
  std::vector<int64_t> values;  // [events, width]
};

// For each row of the batch in order, returns the last `length` events of the user before the row's
// time, and then adds the row's event. An event is added after the events of its time. Events of
// the row's own time are not in its list.
//
// `rows` [num_rows, layout.dim()] are read and written. If `idle_seconds` is above 0, a user whose
// newest event is more than `idle_seconds` before the clock has no events any more. The clock is
// the latest time of the rows so far, at first *clock; it is returned in *clock.
//
// A row with other contents than this function writes has some list of events, and is no error.
EventLists KeepEvents(const KeptLayout& layout, float* rows, size_t num_rows, const UserRows& batch,
                      int64_t idle_seconds, int64_t* clock);

}  // namespace msrec
