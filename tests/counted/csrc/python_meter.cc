// SPDX-License-Identifier: Apache-2.0
//
// Functions by which a Python program has callgrind count a part of it; a library of their own, for
// ctypes.
#include <valgrind/callgrind.h>

extern "C" {

void msrec_meter_start() { CALLGRIND_START_INSTRUMENTATION; }

// Stops, and writes what was counted since the last call, under that name.
void msrec_meter_stop(const char* name) {
  CALLGRIND_STOP_INSTRUMENTATION;
  CALLGRIND_DUMP_STATS_AT(name);
}
}
