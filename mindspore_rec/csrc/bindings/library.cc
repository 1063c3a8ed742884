// SPDX-License-Identifier: Apache-2.0
#include "bindings/library.h"

#include <malloc.h>
#include <pybind11/numpy.h>

#include <string>

#include "rows/batch.h"
#include "rows/kernels.h"
#include "table/core/row_sizes.h"
#include "util/crc32c.h"
#include "util/hash.h"
#include "util/thread_pool.h"

namespace py = pybind11;

namespace msrec {
namespace {

void SetNumThreads(int n) {
  if (n < 1 || n > 1024) throw py::value_error("num_threads must be in [1, 1024]");
  py::gil_scoped_release release;
  ThreadPool::Global().SetNumThreads(n);
}

// By default, glibc returns freed blocks over 32 MiB to the system, so a graph's output over 32 MiB
// causes page faults in every step. With 160,000 rows of 64 floats, the page faults take half of a
// step's time. KeepFreedMemory lets the heap keep up to 1 GiB of freed memory.
void KeepFreedMemory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

uint64_t HashOfIds(const py::array& ids) {
  const bool is_int64 = py::isinstance<py::array_t<int64_t>>(ids);
  if (!is_int64 && !py::isinstance<py::array_t<int32_t>>(ids)) {
    throw py::type_error("ids must be int32 or int64");
  }
  if ((ids.flags() & py::array::c_style) == 0) {
    throw py::value_error("ids must be C-contiguous");
  }
  return HashIds({ids.data(), static_cast<size_t>(ids.size()), is_int64});
}

uint32_t Checksum(const py::buffer& data, uint32_t crc) {
  const py::buffer_info bytes = data.request();
  if (bytes.ndim != 1 || bytes.strides[0] != bytes.itemsize) {
    throw py::value_error("data must be contiguous bytes");
  }
  const py::gil_scoped_release release;
  return Crc32c(crc, bytes.ptr, static_cast<size_t>(bytes.size * bytes.itemsize));
}

py::array_t<uint32_t> OwnersOf(const py::array_t<int64_t, py::array::c_style>& keys,
                               uint32_t workers) {
  if (workers < 1) throw py::value_error("workers must be at least 1");
  py::array_t<uint32_t> owners(keys.size());
  for (py::ssize_t i = 0; i < keys.size(); ++i) {
    owners.mutable_data()[i] = OwnerOf(keys.data()[i], workers);
  }
  return owners;
}

RowSizes SizesOfRow(int32_t dim, int32_t state_width, const std::string& value_type,
                    const std::string& state_type, bool scored) {
  if (dim < 0 || state_width < 0) throw py::value_error("dim and state_width must be at least 0");
  RowLayout layout;
  layout.dim = dim;
  layout.state_width = state_width;
  layout.value_type = ParseNumberType(value_type, "value_type");
  layout.state_type = ParseNumberType(state_type, "state_type");
  layout.scored = scored;
  if (layout.optimizer_width() < 0) throw py::value_error("state_width must be at least 1: scored");
  return RowSizes(layout);
}

void BindSizes(py::module_& m) {
  py::class_<RowSizes>(m, "RowSizes")
      .def_readonly("metadata", &RowSizes::metadata)
      .def_readonly("value", &RowSizes::value)
      .def_readonly("state", &RowSizes::state)
      .def_readonly("block", &RowSizes::block)
      .def_readonly("index", &RowSizes::index)
      .def_readonly("pin", &RowSizes::pin)
      .def_readonly("digest", &RowSizes::digest)
      .def_readonly("ssd_header", &RowSizes::ssd_header)
      .def_readonly("ssd_index", &RowSizes::ssd_index)
      .def("in_host", &RowSizes::in_host, py::arg("tiered") = false);
  m.def("row_sizes", &SizesOfRow, py::arg("dim"), py::arg("state_width") = 0,
        py::arg("value_type") = "float32", py::arg("state_type") = "float32",
        py::arg("scored") = false);
}

}  // namespace

void BindLibrary(py::module_& m) {
  BindSizes(m);
  m.def("set_num_threads", &SetNumThreads, py::arg("num_threads"));
  m.def("get_num_threads", [] { return ThreadPool::Global().num_threads(); });
  m.def("keep_freed_memory", &KeepFreedMemory);
  m.def("simd", [] { return std::string(ActiveKernels().name); });
  m.def("hash_ids", &HashOfIds, py::arg("ids"));
  m.def("owners", &OwnersOf, py::arg("keys"), py::arg("workers"));
  m.def("crc32c", &Checksum, py::arg("data"), py::arg("crc") = 0);
}

}  // namespace msrec
