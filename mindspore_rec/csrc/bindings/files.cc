// SPDX-License-Identifier: Apache-2.0
#include "bindings/files.h"

#include <memory>
#include <mutex>
#include <string>

#include "bindings/arrays.h"
#include "bindings/calls.h"
#include "tier/env.h"

namespace py = pybind11;

namespace msrec {
namespace {

class PyFileLock {
 public:
  explicit PyFileLock(const std::string& path) : lock_(Env::Posix()->Lock(path, true)) {}
  void Close() {
    const std::lock_guard<std::mutex> guard(mutex_);
    lock_.reset();
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace

// ssd_store.cc translates IoError into an OSError.
void BindFiles(py::module_& m) {
  py::class_<PyFileLock>(m, "FileLock")
      .def(py::init([](const py::object& path) {
             const std::string text = PathOf(path);
             py::gil_scoped_release release;
             return std::make_unique<PyFileLock>(text);
           }),
           py::arg("path"))
      .def("close", &PyFileLock::Close, py::call_guard<py::gil_scoped_release>())
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](PyFileLock& self, const py::args&) {
        py::gil_scoped_release release;
        self.Close();
      });
  m.def(
      "make_directories",
      [](const py::object& path) {
        const std::string text = PathOf(path);
        py::gil_scoped_release release;
        Env::Posix()->CreateDirectory(text);
      },
      py::arg("path"));
}

}  // namespace msrec
