// SPDX-License-Identifier: Apache-2.0
#include "bindings/ssd_store.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/calls.h"
#include "util/bytes.h"

namespace py = pybind11;

namespace msrec {
namespace {

// The iterator of SsdStore.scan. The Python iterator holds a reference to the store, so the scan is
// destroyed before the store.
class StoreScan {
 public:
  StoreScan(py::object store, size_t most, bool exact) : store_(std::move(store)), most_(most) {
    SsdTier& tier = store_.cast<SsdStore&>().tier();
    row_bytes_ = tier.row_bytes();
    py::gil_scoped_release release;
    scan_ = tier.Scan(exact);
  }
  ~StoreScan() { Close(); }

  py::tuple Next() {
    store_.cast<SsdStore&>().tier();
    bool more = false;
    std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
    {
      py::gil_scoped_release release;
      lock.lock();  // without the GIL, so that a thread that holds this lock can take the GIL
      more = scan_ != nullptr && scan_->Next(most_, &keys_, &rows_);
      if (!more) scan_.reset();
    }
    if (!more) throw py::stop_iteration();
    const auto n = static_cast<py::ssize_t>(keys_.size());
    py::array_t<uint8_t> rows({n, static_cast<py::ssize_t>(row_bytes_)});
    CopyBytes(rows.mutable_data(), rows_.data(), rows_.size());
    return py::make_tuple(py::array_t<int64_t>(n, keys_.data()), rows);
  }

  void Close() {
    if (!owner_.here()) {
      static_cast<void>(scan_.release());  // a scan of the parent's tier
      return;
    }
    py::gil_scoped_release release;
    const std::lock_guard<std::mutex> lock(mutex_);
    scan_.reset();
  }

 private:
  const py::object store_;
  const size_t most_;
  const OwnerProcess owner_;
  size_t row_bytes_;
  std::mutex mutex_;
  std::unique_ptr<TierScan> scan_;
  std::vector<int64_t> keys_;
  std::vector<char> rows_;
};

std::string Where(const SsdTier& self, const std::string& what) {
  return "SSD tier '" + self.path() + "': " + what;
}

const int64_t* StoredKeys(const SsdTier& self, const py::array& keys) {
  if (!py::isinstance<py::array_t<int64_t>>(keys)) {
    throw py::type_error(
        Where(self, "keys must be int64, got " + std::string(py::str(keys.dtype()))));
  }
  if (keys.ndim() != 1 || (keys.flags() & py::array::c_style) == 0) {
    throw py::value_error(Where(self, "keys must be a C-contiguous vector, got shape " +
                                          std::string(py::str(keys.attr("shape")))));
  }
  return static_cast<const int64_t*>(keys.data());
}

py::tuple Read(const SsdStore& store, const py::array& keys) {
  SsdTier& self = store.tier();
  const int64_t* data = StoredKeys(self, keys);
  const py::ssize_t n = keys.size();
  const auto row_bytes = static_cast<py::ssize_t>(self.row_bytes());
  py::array_t<uint8_t> rows({n, row_bytes});
  py::array_t<bool> found(n);
  auto* out = reinterpret_cast<char*>(rows.mutable_data());
  bool* flags = found.mutable_data();
  {
    py::gil_scoped_release release;
    self.Read(data, n, out, flags);
    for (py::ssize_t i = 0; i < n; ++i) {
      if (!flags[i]) std::memset(out + i * row_bytes, 0, row_bytes);
    }
  }
  return py::make_tuple(rows, found);
}

void Write(const SsdStore& store, const py::array& keys, const py::array& rows) {
  SsdTier& self = store.tier();
  const int64_t* data = StoredKeys(self, keys);
  const py::ssize_t n = keys.size();
  const auto row_bytes = static_cast<py::ssize_t>(self.row_bytes());
  if (rows.ndim() < 1 || rows.shape(0) != n || rows.nbytes() != n * row_bytes ||
      (rows.flags() & py::array::c_style) == 0) {
    throw py::value_error(Where(self, "rows must be C-contiguous with " +
                                          std::to_string(row_bytes) + " bytes for each of " +
                                          std::to_string(n) + " keys, got shape " +
                                          std::string(py::str(rows.attr("shape"))) + " of " +
                                          std::string(py::str(rows.dtype()))));
  }
  const char* bytes = static_cast<const char*>(rows.data());
  py::gil_scoped_release release;
  self.Write(data, n, bytes);
}

void EraseStored(const SsdStore& store, const py::array& keys) {
  SsdTier& self = store.tier();
  const int64_t* data = StoredKeys(self, keys);
  const auto n = static_cast<size_t>(keys.size());
  py::gil_scoped_release release;
  self.Erase(data, n);
}

py::array_t<bool> ContainsStored(const SsdStore& store, const py::array& keys) {
  const SsdTier& self = store.tier();
  const int64_t* data = StoredKeys(self, keys);
  py::array_t<bool> found(keys.size());
  bool* flags = found.mutable_data();
  const auto n = static_cast<size_t>(keys.size());
  py::gil_scoped_release release;
  self.Contains(data, n, flags);
  return found;
}

py::array_t<int64_t> AllKeys(const SsdStore& store) {
  const SsdTier& self = store.tier();
  std::vector<int64_t> keys;
  {
    py::gil_scoped_release release;
    keys = self.Keys();
  }
  return py::array_t<int64_t>(static_cast<py::ssize_t>(keys.size()), keys.data());
}

py::dict StatsOfStore(const SsdStore& store) {
  const SsdTier& self = store.tier();
  TierStats s;
  {
    py::gil_scoped_release release;
    s = self.Stats();
  }
  py::dict out;
  out["rows"] = s.rows;
  out["row_bytes"] = self.row_bytes();
  out["live_bytes"] = s.live_bytes;
  out["disk_bytes"] = s.disk_bytes;
  out["space_amplification"] =
      s.rows == 0 ? 0.0 : static_cast<double>(s.disk_bytes) / static_cast<double>(s.live_bytes);
  out["index_bytes"] = s.index_bytes;
  out["buffer_bytes"] = s.buffer_bytes;
  out["read_bytes"] = s.read_bytes;
  out["written_bytes"] = s.written_bytes;
  out["gc_bytes"] = s.gc_bytes;
  out["gc_segments"] = s.gc_segments;
  out["gc_error"] = self.gc_error();
  out["segments"] = s.segments;
  out["tombstone_records"] = s.tombstone_records;
  out["rebuilt_footers"] = s.rebuilt_footers;
  out["damaged_segments"] = s.damaged_segments;
  out["throttle_seconds"] = s.throttled.count();
  out["io"] = self.io_name();
  return out;
}

py::list Listed(const std::vector<Corruption>& problems) {
  py::list out;
  for (const Corruption& each : problems) {
    py::dict problem;
    problem["path"] = each.path();
    problem["offset"] = each.offset();
    problem["problem"] = each.problem();
    out.append(problem);
  }
  return out;
}

py::list Verify(const SsdStore& store) {
  SsdTier& self = store.tier();
  std::vector<Corruption> problems;
  {
    py::gil_scoped_release release;
    problems = self.Verify();
  }
  return Listed(problems);
}

py::list VerifyFiles(const py::object& path) {
  const std::string text = PathOf(path);
  std::vector<Corruption> problems;
  {
    py::gil_scoped_release release;
    problems = SsdTier::VerifyFiles(text);
  }
  return Listed(problems);
}

py::list Segments(const SsdStore& store) {
  const SsdTier& self = store.tier();
  std::vector<SsdTier::SegmentInfo> segments;
  {
    py::gil_scoped_release release;
    segments = self.Segments();
  }
  py::list out;
  for (const SsdTier::SegmentInfo& each : segments) {
    py::dict segment;
    segment["name"] = each.name;
    segment["records"] = each.slots;
    segment["live_rows"] = each.live;
    segment["tombstone_records"] = each.tombstone_slots;
    segment["bytes"] = each.bytes;
    segment["sealed"] = each.sealed;
    out.append(segment);
  }
  return out;
}

// Closes the store. In a forked child, Close does nothing, because the store belongs to the parent.
void Close(const SsdStore& store) {
  if (!store.in_owner()) return;
  py::gil_scoped_release release;
  store.tier().Close();
}

template <void (SsdTier::*method)()>
void Run(const SsdStore& store) {
  SsdTier& self = store.tier();
  py::gil_scoped_release release;
  (self.*method)();
}

std::unique_ptr<SsdStore> Open(const py::object& path, py::ssize_t row_bytes, int64_t max_bytes,
                               int64_t segment_bytes, bool direct, bool read_only, bool io_uring,
                               int queue_depth, double gc_ratio, bool background_gc) {
  const auto non_negative = [](int64_t value, const char* name) {
    if (value < 0) {
      throw py::value_error(std::string(name) + " must be at least 0, got " +
                            std::to_string(value));
    }
    return static_cast<uint64_t>(value);
  };
  SsdOptions options;
  options.path = PathOf(path);
  options.row_bytes = non_negative(row_bytes, "row_bytes");
  options.max_bytes = non_negative(max_bytes, "max_bytes");
  options.segment_bytes = non_negative(segment_bytes, "segment_bytes");
  options.direct = direct;
  options.read_only = read_only;
  options.io_uring = io_uring;
  options.queue_depth = static_cast<unsigned>(non_negative(queue_depth, "queue_depth"));
  options.gc_ratio = gc_ratio;
  options.background_gc = background_gc;
  py::gil_scoped_release release;
  try {
    return std::make_unique<SsdStore>(options);
  } catch (const Corruption& e) {
    throw Corruption(e.problem() +
                         " (synced rows are lost, so the tier does not open; `python -m "
                         "mindspore_rec.ssd verify " +
                         options.path +
                         "` lists all damage; remove the directory and go on from a checkpoint)",
                     e.path(), e.offset());
  }
}

// An IoError becomes the OSError class of its errno, such as FileNotFoundError, and names the path.
// Corruption becomes SsdCorruptionError, which also contains the offset.
PyObject* corruption_error = nullptr;

void Translate(std::exception_ptr raised) {
  try {
    if (raised) std::rethrow_exception(raised);
  } catch (const IoError& e) {
    const py::tuple args =
        py::make_tuple(e.code().value(), e.action() + ": " + e.code().message(), e.path());
    PyErr_SetObject(PyExc_OSError, args.ptr());
  } catch (const Corruption& e) {
    const py::object error = py::reinterpret_borrow<py::object>(corruption_error)(
        EBADMSG, "damaged at byte " + std::to_string(e.offset()) + ": " + e.problem(), e.path());
    error.attr("offset") = e.offset();
    PyErr_SetObject(corruption_error, error.ptr());
  }
}

}  // namespace

SsdStore::SsdStore(const SsdOptions& options)
    : tier_(new SsdTier(options)), path_(tier_->path()), subject_(Where(*tier_, "")) {}

void BindSsdStore(py::module_& m) {
  corruption_error =
      PyErr_NewException("mindspore_rec._native.SsdCorruptionError", PyExc_OSError, nullptr);
  m.add_object("SsdCorruptionError", py::reinterpret_borrow<py::object>(corruption_error));
  py::register_local_exception_translator(&Translate);
  py::class_<StoreScan>(m, "SsdScan")
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &StoreScan::Next)
      .def("close", &StoreScan::Close)
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](StoreScan& self, const py::args&) { self.Close(); });
  py::class_<SsdStore>(m, "SsdStore")
      .def(py::init(&Open), py::arg("path"), py::arg("row_bytes") = 0, py::kw_only(),
           py::arg("max_bytes") = 0, py::arg("segment_bytes") = 0, py::arg("direct") = true,
           py::arg("read_only") = false, py::arg("io_uring") = true, py::arg("queue_depth") = 128,
           py::arg("gc_ratio") = SsdOptions().gc_ratio, py::arg("background_gc") = true)
      .def("read", &Read, py::arg("keys"))
      .def("write", &Write, py::arg("keys"), py::arg("rows"))
      .def("erase", &EraseStored, py::arg("keys"))
      .def("contains", &ContainsStored, py::arg("keys"))
      .def(
          "scan",
          [](const py::object& self, int64_t most, bool exact) {
            if (most < 1) {
              throw py::value_error(Where(self.cast<SsdStore&>().tier(),
                                          "most must be at least 1, got " + std::to_string(most)));
            }
            return std::make_unique<StoreScan>(self, static_cast<size_t>(most), exact);
          },
          py::arg("most") = 16384, py::kw_only(), py::arg("exact") = false)
      .def("clear", &Run<&SsdTier::Clear>)
      .def("flush", &Run<&SsdTier::Flush>)
      .def("compact", &Run<&SsdTier::Compact>)
      .def("close", &Close)
      .def("keys", &AllKeys)
      .def("stats", &StatsOfStore)
      .def("segments", &Segments)
      .def("verify", &Verify)
      .def_static("verify_files", &VerifyFiles, py::arg("path"))
      .def_property_readonly("path", &SsdStore::path)
      .def_property_readonly("row_bytes",
                             [](const SsdStore& store) { return store.tier().row_bytes(); })
      .def("__len__",
           [](const SsdStore& store) {
             const SsdTier& self = store.tier();
             py::gil_scoped_release release;
             return self.size();
           })
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](const SsdStore& store, const py::args&) { Close(store); });
}

}  // namespace msrec
