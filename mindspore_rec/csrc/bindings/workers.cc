// SPDX-License-Identifier: Apache-2.0
#include "bindings/workers.h"

#include <dlfcn.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include "workers/communicator.h"
#include "workers/group.h"
#include "workers/mpi_job.h"
#include "workers/reduce.h"
#include "workers/row_service.h"
#include "workers/thread_group.h"

namespace py = pybind11;

namespace msrec {
namespace {

using Released = py::gil_scoped_release;

// Prints the stacks of all Python threads. The function calls _Py_DumpTracebackThreads of CPython,
// which needs no GIL.
void PrintStacks(int fd) {
  using Dump = const char* (*)(int, PyInterpreterState*, PyThreadState*);
  static const auto dump = reinterpret_cast<Dump>(dlsym(RTLD_DEFAULT, "_Py_DumpTracebackThreads"));
  if (dump != nullptr) dump(fd, PyInterpreterState_Main(), nullptr);
}

// Pointer with which a Python object holds a worker group. The group of the process is never
// destroyed.
using GroupPointer = std::shared_ptr<WorkerGroup>;

GroupPointer Started() {
  return {TheGroup(), [](WorkerGroup*) {}};
}

GroupPointer Start(const std::string& shim, double wait_limit, double start_limit,
                   size_t most_bytes) {
  MpiJobOptions options;
  options.shim = shim;
  options.wait_limit = wait_limit;
  options.start_limit = start_limit;
  options.most_bytes = most_bytes;
  options.print_stacks = &PrintStacks;
  const Released release;
  SetTheGroup(MpiJob::Start(options)->TakeGroup());
  StartRowService();
  return Started();
}

GroupPointer Alone() { return std::move(MakeThreadGroups(1)[0]); }

MpiJob& Job() {
  MpiJob* job = MpiJob::The();
  if (job == nullptr) throw WorkerError("this process is not a worker of a job");
  return *job;
}

py::list ToList(const std::vector<std::string>& all) {
  py::list result;
  for (const std::string& each : all) result.append(py::bytes(each));
  return result;
}

py::list AllGather(Communicator& channel, const std::string& data) {
  std::vector<std::string> all;
  {
    const Released release;
    all = GatherBytes(channel, data);
  }
  return ToList(all);
}

py::list AllToAll(Communicator& channel, const std::vector<std::string>& parts) {
  if (parts.size() != static_cast<size_t>(channel.size())) {
    throw py::value_error("data must have one item for each of the " +
                          std::to_string(channel.size()) + " workers, got " +
                          std::to_string(parts.size()));
  }
  std::string received;
  std::vector<size_t> send_bytes, recv_bytes(parts.size());
  {
    const Released release;
    std::string sent;
    for (const std::string& part : parts) {
      sent += part;
      send_bytes.push_back(part.size());
    }
    const std::vector<size_t> one(parts.size(), sizeof(size_t));
    channel.AllToAllV(send_bytes.data(), one.data(), recv_bytes.data(), one.data());
    size_t total = 0;
    for (const size_t bytes : recv_bytes) total += bytes;
    received.resize(total);
    channel.AllToAllV(sent.data(), send_bytes.data(), received.data(), recv_bytes.data());
  }
  py::list result;
  size_t at = 0;
  for (const size_t bytes : recv_bytes) {
    result.append(py::bytes(received.data() + at, bytes));
    at += bytes;
  }
  return result;
}

// Throws ValueError if the library uses `tag` for its own messages on this channel.
void RequireFree(const Communicator& channel, int tag) {
  const bool shared = channel.name() == kChannelNames[static_cast<size_t>(Channel::kService)];
  if (!shared || tag < RowService::kRequestTag) return;
  throw py::value_error("tag must be in [0, " + std::to_string(RowService::kRequestTag - 1) +
                        "] on channel '" + channel.name() + "', got " + std::to_string(tag));
}

int RankOrAny(const py::object& from) {
  return from.is_none() ? Communicator::kAny : from.cast<int>();
}

py::object Poll(Communicator& channel, const py::object& from, int tag) {
  RequireFree(channel, tag);
  const int rank = RankOrAny(from);
  std::optional<WorkerMessage> message;
  {
    const Released release;
    message = channel.TryReceive(rank, tag);
  }
  if (!message.has_value()) return py::none();
  return py::make_tuple(message->from, py::bytes(message->data));
}

py::tuple Receive(Communicator& channel, const py::object& from, int tag) {
  RequireFree(channel, tag);
  const int rank = RankOrAny(from);
  WorkerMessage message;
  {
    const Released release;
    message = channel.Receive(rank, tag);
  }
  return py::make_tuple(message.from, py::bytes(message.data));
}

// A contiguous byte array that Python owns.
ByteSpan Bytes(const py::buffer_info& info) {
  return {info.ptr, static_cast<size_t>(info.size * info.itemsize)};
}

py::object FindDifferenceOf(Communicator& channel, const std::vector<py::buffer>& arrays) {
  std::vector<py::buffer_info> infos;
  std::vector<ByteSpan> spans;
  for (const py::buffer& array : arrays) {
    infos.push_back(array.request());
    py::ssize_t stride = infos.back().itemsize;
    for (py::ssize_t d = infos.back().ndim - 1; d >= 0; --d) {
      if (infos.back().shape[d] > 1 && infos.back().strides[d] != stride) {
        throw py::value_error("arrays must be C-contiguous");
      }
      stride *= infos.back().shape[d];
    }
    spans.push_back(Bytes(infos.back()));
  }
  std::optional<WorkerDifference> found;
  {
    const Released release;
    found = FindDifference(channel, spans);
  }
  if (!found.has_value()) return py::none();
  return py::make_tuple(found->place, found->workers);
}

py::dict StatisticsOf(const Communicator& channel) {
  const ChannelStatistics statistics = channel.statistics();
  py::dict result;
  result["calls"] = statistics.calls;
  result["bytes_sent"] = statistics.bytes_sent;
  result["bytes_received"] = statistics.bytes_received;
  result["seconds"] = statistics.seconds;
  return result;
}

Communicator& ChannelOf(WorkerGroup& group, const std::string& name) {
  for (size_t i = 0; i < kChannelNames.size(); ++i) {
    if (name == kChannelNames[i]) return group.channel(static_cast<Channel>(i));
  }
  throw py::value_error("there is no channel '" + name + "'");
}

void BindChannel(py::module_& m) {
  py::class_<Communicator, std::unique_ptr<Communicator, py::nodelete>>(m, "WorkerChannel")
      .def_property_readonly("name", &Communicator::name)
      .def_property_readonly("rank", &Communicator::rank)
      .def_property_readonly("size", &Communicator::size)
      .def_property("wait_limit", &Communicator::wait_limit, &Communicator::set_wait_limit)
      .def_property_readonly("waiting", &Communicator::waiting)
      .def("statistics", &StatisticsOf)
      .def("all_gather", &AllGather, py::arg("data"))
      .def("all_to_all", &AllToAll, py::arg("data"))
      .def("barrier", &Communicator::Barrier, py::call_guard<Released>())
      .def(
          "send",
          [](Communicator& channel, int to, const std::string& data, int tag) {
            RequireFree(channel, tag);
            const Released release;
            channel.Send(to, tag, data.data(), data.size());
          },
          py::arg("to"), py::arg("data"), py::arg("tag") = 0)
      .def("poll", &Poll, py::arg("from_worker") = py::none(), py::arg("tag") = 0)
      .def("receive", &Receive, py::arg("from_worker") = py::none(), py::arg("tag") = 0)
      .def("find_difference", &FindDifferenceOf, py::arg("arrays"));
}

void BindGroup(py::module_& m) {
  py::class_<WorkerGroup, GroupPointer>(m, "WorkerGroup")
      .def_static("start", &Start, py::arg("shim"), py::arg("wait_limit"), py::arg("start_limit"),
                  py::arg("most_bytes"))
      .def_static("started", &Started)
      .def_static("alone", &Alone)
      .def_static("library", [] { return Job().library(); })
      .def_static(
          "leave", [] { return Job().Leave(); }, py::call_guard<Released>())
      .def_static(
          "finish",
          [] {
            // When all workers have called Leave, no worker requests rows any more.
            if (Job().Leave()) StopRowService();
            Job().Finish();
          },
          py::call_guard<Released>())
      .def_static(
          "stop_watching", [] { Job().StopWatching(); }, py::call_guard<Released>())
      .def_property_readonly("rank", &WorkerGroup::rank)
      .def_property_readonly("size", &WorkerGroup::size)
      .def("channel", &ChannelOf, py::arg("name"), py::return_value_policy::reference,
           py::keep_alive<0, 1>())
      .def("begin_step", &WorkerGroup::BeginStep, py::arg("step"), py::arg("samples"),
           py::arg("summed") = false)
      .def_property_readonly("step", &WorkerGroup::step)
      .def_property_readonly("weights", [](const WorkerGroup& group) { return group.weights(); })
      .def_property_readonly("idle", &WorkerGroup::idle);
}

}  // namespace

void BindWorkers(py::module_& m) {
  py::register_exception<WorkerError>(m, "WorkerError", PyExc_RuntimeError);
  BindChannel(m);
  BindGroup(m);
}

}  // namespace msrec
