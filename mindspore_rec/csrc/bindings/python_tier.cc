// SPDX-License-Identifier: Apache-2.0
#include "bindings/python_tier.h"

#include <pybind11/numpy.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/python_entry.h"
#include "bindings/ssd_store.h"
#include "table/core/table_errors.h"

namespace py = pybind11;

namespace msrec {
namespace {

PyObject* damaged_error = nullptr;

// Turns a Python exception into a C++ exception with the same text, because a C++ exception does
// not need the GIL. RowDamagedError becomes RowDamaged.
[[noreturn]] void Rethrow(py::error_already_set& error) {
  std::string what = py::str(error.value());
  const std::string name = py::str(error.type().attr("__name__"));
  if (what.empty()) what = name;
  if (damaged_error != nullptr && error.matches(damaged_error)) throw RowDamaged(what);
  throw std::runtime_error(what);
}

template <typename Fn>
auto WithPython(Fn fn) {
  const PythonEntry python;
  try {
    return fn();
  } catch (py::error_already_set& error) {
    Rethrow(error);
  }
}

// Returns an array that does not own its memory. The data is not copied, so Python must not use the
// array after the call.
template <typename T>
py::array Borrow(const T* data, std::vector<py::ssize_t> shape, bool writable) {
  py::array array(py::dtype::of<T>(), std::move(shape), data, py::none());
  if (!writable) array.attr("setflags")(py::arg("write") = false);
  return array;
}

class PythonTier : public Tier {
 public:
  explicit PythonTier(py::object object)
      : object_(std::move(object)), row_bytes_(object_.attr("row_bytes").cast<size_t>()) {}

  ~PythonTier() override {
    if (!Py_IsInitialized()) {
      object_.release();  // the interpreter and all its objects are already gone
      return;
    }
    try {
      const PythonEntry python;
      try {
        object_.attr("close")();
      } catch (py::error_already_set&) {
        // A destructor cannot report an error to a caller.
      }
      object_ = py::object();
    } catch (const PythonEnds&) {
      object_.release();
    }
  }

  void Read(const int64_t* keys, size_t n, char* rows, bool* found) override {
    if (n == 0) return;
    WithPython([&] {
      object_.attr("read")(Keys(keys, n), Rows(rows, n, true),
                           Borrow(found, {static_cast<py::ssize_t>(n)}, true));
    });
  }

  // Calls the tier's own `contains` if the tier has this method. A tier's own `contains` also
  // counts a damaged row as present.
  void Contains(const int64_t* keys, size_t n, bool* found) const override {
    if (n == 0) return;
    const bool done = WithPython([&] {
      if (!py::hasattr(object_, "contains")) return false;
      object_.attr("contains")(Keys(keys, n), Borrow(found, {static_cast<py::ssize_t>(n)}, true));
      return true;
    });
    if (done) return;
    std::vector<char> rows(n * row_bytes_);
    const_cast<PythonTier*>(this)->Read(keys, n, rows.data(), found);
  }

  void Write(const int64_t* keys, size_t n, const char* rows) override {
    if (n == 0) return;
    WithPython([&] { object_.attr("write")(Keys(keys, n), Rows(rows, n, false)); });
  }

  void Erase(const int64_t* keys, size_t n) override {
    if (n == 0) return;
    WithPython([&] { object_.attr("erase")(Keys(keys, n)); });
  }

  void Flush() override {
    WithPython([&] { object_.attr("flush")(); });
  }
  void Clear() override {
    WithPython([&] { object_.attr("clear")(); });
  }
  size_t size() const override {
    return WithPython([&] { return object_.attr("size")().cast<size_t>(); });
  }
  size_t row_bytes() const override { return row_bytes_; }

  std::vector<int64_t> Keys() const override {
    std::vector<int64_t> all, keys;
    std::vector<char> rows;
    const auto scan = const_cast<PythonTier*>(this)->Scan(true);
    while (scan->Next(4096, &keys, &rows)) all.insert(all.end(), keys.begin(), keys.end());
    return all;
  }

  std::unique_ptr<TierScan> Scan(bool) override { return std::make_unique<PythonScan>(this); }

  TierStats Stats() const override {
    return WithPython([&] {
      const auto given = object_.attr("stats")().cast<py::dict>();
      const auto number = [&](const char* name) -> uint64_t {
        return given.contains(name) ? py::float_(given[name]).cast<double>() : 0;
      };
      TierStats stats;
      stats.rows = object_.attr("size")().cast<uint64_t>();
      stats.live_bytes = stats.rows * row_bytes_;
      stats.read_bytes = number("read_bytes");
      stats.written_bytes = number("written_bytes");
      return stats;
    });
  }

 private:
  class PythonScan : public TierScan {
   public:
    explicit PythonScan(PythonTier* tier) : tier_(tier) {}

    bool Next(size_t most, std::vector<int64_t>* keys, std::vector<char>* rows) override {
      keys->clear();
      rows->clear();
      while (!ended_ && keys->empty()) {
        WithPython([&] {
          const py::tuple part = tier_->object_.attr("scan")(cursor_, most);
          cursor_ = part[0].cast<int64_t>();
          ended_ = cursor_ == 0;
          const auto some = part[1].cast<py::array_t<int64_t, py::array::c_style>>();
          const auto blocks = part[2].cast<py::array_t<uint8_t, py::array::c_style>>();
          const auto n = static_cast<size_t>(some.size());
          if (static_cast<size_t>(blocks.size()) != n * tier_->row_bytes_) {
            throw std::runtime_error("a tier's scan gave " + std::to_string(blocks.size()) +
                                     " bytes for " + std::to_string(n) + " rows of " +
                                     std::to_string(tier_->row_bytes_));
          }
          keys->assign(some.data(), some.data() + n);
          const auto* bytes = reinterpret_cast<const char*>(blocks.data());
          rows->assign(bytes, bytes + n * tier_->row_bytes_);
        });
      }
      return !keys->empty();
    }

   private:
    PythonTier* tier_;
    int64_t cursor_ = 0;
    bool ended_ = false;
  };

  static py::array Keys(const int64_t* keys, size_t n) {
    return Borrow(keys, {static_cast<py::ssize_t>(n)}, false);
  }
  py::array Rows(const char* rows, size_t n, bool writable) const {
    return Borrow(reinterpret_cast<const uint8_t*>(rows),
                  {static_cast<py::ssize_t>(n), static_cast<py::ssize_t>(row_bytes_)}, writable);
  }

  py::object object_;
  const size_t row_bytes_;
};

}  // namespace

void SetRowDamagedError(PyObject* type) { damaged_error = type; }

std::shared_ptr<Tier> TierOf(const py::object& object) {
  if (!py::isinstance<SsdStore>(object)) return std::make_shared<PythonTier>(object);
  // The Python object owns the tier.
  auto* owner = new py::object(object);
  return std::shared_ptr<Tier>(&object.cast<SsdStore&>().tier(), [owner](Tier*) {
    if (!Py_IsInitialized()) return;
    try {
      const PythonEntry python;
      delete owner;
    } catch (const PythonEnds&) {
      // The object is never destroyed.
    }
  });
}

}  // namespace msrec
