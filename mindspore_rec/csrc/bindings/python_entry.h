// SPDX-License-Identifier: Apache-2.0
//
// PythonEntry: takes Python's lock in any thread, for a scope. While Python shuts down, it ends
// each thread that asks for its lock, in the middle of the C++ functions that the thread is in. The
// destructors of Python objects in these functions then crash the process. So threads that Python
// does not know are kept out before: PythonEntry throws PythonEnds.
#pragma once

#include <pybind11/pybind11.h>

#include <stdexcept>

namespace msrec {

class PythonEnds : public std::runtime_error {
 public:
  PythonEnds()
      : std::runtime_error("Python is shutting down, so this thread can call no Python any more") {}
};

class PythonEntry {
 public:
  // Throws PythonEnds in a thread that has not called Python yet, if Python is shutting down. Other
  // threads, such as the thread that shuts Python down, may enter at any time.
  PythonEntry() = default;
  PythonEntry(const PythonEntry&) = delete;
  PythonEntry& operator=(const PythonEntry&) = delete;

 private:
  struct Pass {
    Pass();
    ~Pass();
    const bool counted;
  };

  Pass pass_;  // outlives the lock
  pybind11::gil_scoped_acquire lock_;
};

// Makes Python call, at its exit, a function that lets no further thread enter, and waits for the
// threads that have entered. The function waits for at most ten seconds. Python calls functions
// that were registered with `atexit` earlier after this function.
void WatchPythonsEnd();

}  // namespace msrec
