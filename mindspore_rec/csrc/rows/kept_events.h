// SPDX-License-Identifier: Apache-2.0
//
// The last events of each user, kept in a row of a table. An event is a time and `width` further
// int64 numbers, such as the key of an item. The float32 numbers of a row are whole numbers below
// 2^22, so a copy of a row is identical, bit for bit, in every float mode.
//
// A row keeps the last `length` events before its newest time, and the last `length` events at its
// newest time, oldest first. If t is at or after a row's newest time, the row contains the last
// `length` events before t, even if many events have the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msrec {

struct KeptLayout {
  size_t length;  // maximum number of events of a history
  size_t width;   // int64 numbers of an event, without its time

  size_t capacity() const { return 2 * length; }
  // Number of floats of a row: 1 for the number of events, and 3 for each int64 of each event.
  size_t dim() const { return 1 + capacity() * 3 * (1 + width); }
};

// A batch of rows, each with a user and a time. Row i of the batch belongs to the user of
// rows[user[i]] and has the time times[i]. If is_event[i] is not 0, the row is an event with the
// numbers values[i * width .. (i + 1) * width).
struct UserRows {
  size_t size;
  const int64_t* user;  // index of the user's row, or -1 for an unknown user, who has no history
                        // and whose event is not kept
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

// For each row of the batch, in order, returns the user's last `length` events before the row's
// time, and then adds the row's event. An event is added after all events with the same time. A
// row's list excludes events that have the same time as the row.
//
// `rows` [num_rows, layout.dim()] are read and written. If `idle_seconds` is above 0, all events of
// a user are dropped when the user's newest event is more than `idle_seconds` before the clock. The
// clock starts at the value of *clock. If a row of the batch has a later time, the clock moves
// forward to the row's time. The function stores the last value of the clock in *clock.
//
// Each row must either contain only zeros (no events) or have been written by KeepEvents. If a row
// meets neither condition, the events of the row are arbitrary, and no error is raised.
EventLists KeepEvents(const KeptLayout& layout, float* rows, size_t num_rows, const UserRows& batch,
                      int64_t idle_seconds, int64_t* clock);

}  // namespace msrec
