// SPDX-License-Identifier: Apache-2.0
#include "bindings/python_entry.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace py = pybind11;

namespace msrec {
namespace {

constexpr auto kMostWait = std::chrono::seconds(10);

std::atomic<bool> closed{false};
std::atomic<int> entered{0};  // threads in a PythonEntry that had not called Python before
pid_t watched = 0;            // a forked child inherits the count, but not the threads

// If this thread has not called Python yet, adds the thread to `entered`. Returns whether the
// thread was added.
bool CountEntry() {
  if (PyGILState_GetThisThreadState() != nullptr) return false;
  ++entered;  // before `closed` is read, so that EndEntries counts this thread or this thread reads
              // `closed`
  if (!closed) return true;
  --entered;
  throw PythonEnds();
}

void EndEntries() {
  closed = true;
  if (getpid() != watched) return;
  const py::gil_scoped_release release;
  const auto end = std::chrono::steady_clock::now() + kMostWait;
  while (entered > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

PythonEntry::Pass::Pass() : counted(CountEntry()) {}
PythonEntry::Pass::~Pass() {
  if (counted) --entered;
}

void WatchPythonsEnd() {
  watched = getpid();
  py::module_::import("atexit").attr("register")(py::cpp_function(&EndEntries));
}

}  // namespace msrec
