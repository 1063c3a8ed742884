// SPDX-License-Identifier: Apache-2.0
//
// PythonEntry: acquires Python's lock (the GIL) in any thread, and releases the lock at the end of
// the scope. While Python shuts down, Python ends each thread that requests Python's lock, even in
// the middle of a C++ function. If a thread ends in a C++ function that has Python objects, the
// destructors of these objects crash the process. During the shutdown, PythonEntry throws
// PythonEnds in a thread that has not called Python yet, before the thread requests the lock.
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
  // Throws PythonEnds if Python is shutting down and this thread has not called Python before. A
  // thread that has called Python before, such as the thread that shuts Python down, may create a
  // PythonEntry at any time.
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

// Registers a function that Python calls when Python exits. As soon as the registered function is
// called, PythonEntry throws PythonEnds in further threads. The registered function waits at most
// ten seconds for the threads that already have a PythonEntry. Python calls the registered function
// before all functions that were registered with `atexit` earlier.
void WatchPythonsEnd();

}  // namespace msrec
