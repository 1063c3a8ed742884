// SPDX-License-Identifier: Apache-2.0
//
// The shim library mindspore_rec/_mpi.so implements csrc/workers/mpi_shim.h with mpi.h.
#include <mpi.h>

#include <cstdio>
#include <vector>

#include "workers/mpi_shim.h"

namespace msrec {
namespace {

static_assert(sizeof(MPI_Request) <= sizeof(MpiRequest) && sizeof(MPI_Comm) <= sizeof(MpiHandle) &&
              sizeof(MPI_Message) <= sizeof(MpiHandle));

// MPI handles are pointers in some libraries and ints in other libraries.
template <typename T>
T FromHandle(uintptr_t handle) {
  return (T)handle;  // NOLINT
}
template <typename T>
uintptr_t ToHandle(T value) {
  return (uintptr_t)value;  // NOLINT
}

int Init(int* rank, int* size, int* threads_are_safe, int* started) {
  int level = 0;
  int before = 0;
  int code = MPI_Initialized(&before);
  if (code != MPI_SUCCESS) return code;
  *started = before == 0;
  code = before ? MPI_Query_thread(&level)
                : MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  if (code != MPI_SUCCESS) return code;
  *threads_are_safe = level == MPI_THREAD_MULTIPLE;
  code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  // For an error without a communicator, MPI calls the error handler of MPI_COMM_SELF; the default
  // handler ends the process.
  if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  if (code == MPI_SUCCESS) code = MPI_Comm_rank(MPI_COMM_WORLD, rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(MPI_COMM_WORLD, size);
  return code;
}

int LibraryVersion(char* text, int capacity) {
  char whole[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  const int code = MPI_Get_library_version(whole, &length);
  if (code == MPI_SUCCESS) std::snprintf(text, capacity, "%s", whole);
  return code;
}

int Finalize() { return MPI_Finalize(); }

void ErrorText(int code, char* text, int capacity) {
  char whole[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(code, whole, &length);
  std::snprintf(text, capacity, "%s", whole);
}

int Duplicate(MpiHandle* communicator) {
  MPI_Comm made;
  int code = MPI_Comm_dup(MPI_COMM_WORLD, &made);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
  *communicator = ToHandle(made);
  return code;
}

int Send(MpiHandle communicator, const void* data, int bytes, int to, int tag,
         MpiRequest* request) {
  MPI_Request made;
  const int code =
      MPI_Isend(data, bytes, MPI_BYTE, to, tag, FromHandle<MPI_Comm>(communicator), &made);
  *request = ToHandle(made);
  return code;
}

int Receive(MpiHandle communicator, void* data, int bytes, int from, int tag, MpiRequest* request) {
  MPI_Request made;
  const int code =
      MPI_Irecv(data, bytes, MPI_BYTE, from, tag, FromHandle<MPI_Comm>(communicator), &made);
  *request = ToHandle(made);
  return code;
}

int TestSome(int n, MpiRequest* requests, int* done, int* places, int* errors, int* bytes) {
  thread_local std::vector<MPI_Request> handles;
  thread_local std::vector<MPI_Status> statuses;
  handles.resize(n);
  statuses.resize(n);
  for (int i = 0; i < n; ++i) handles[i] = FromHandle<MPI_Request>(requests[i]);
  int count = 0;
  const int code = MPI_Testsome(n, handles.data(), &count, places, statuses.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return code;
  *done = count == MPI_UNDEFINED ? -1 : count;
  for (int i = 0; i < *done; ++i) {
    // The error fields of the statuses are valid only if the call returns MPI_ERR_IN_STATUS.
    errors[i] = code == MPI_SUCCESS ? MPI_SUCCESS : statuses[i].MPI_ERROR;
    MPI_Get_count(&statuses[i], MPI_BYTE, &bytes[i]);
    requests[places[i]] = ToHandle(handles[places[i]]);
  }
  return MPI_SUCCESS;
}

int Probe(MpiHandle communicator, int from, int tag, int* found, int* sender, int* bytes,
          MpiHandle* message) {
  MPI_Message matched;
  MPI_Status status;
  const int source = from == kMpiAnySource ? MPI_ANY_SOURCE : from;
  const int code =
      MPI_Improbe(source, tag, FromHandle<MPI_Comm>(communicator), found, &matched, &status);
  if (code != MPI_SUCCESS || *found == 0) return code;
  *message = ToHandle(matched);
  *sender = status.MPI_SOURCE;
  return MPI_Get_count(&status, MPI_BYTE, bytes);
}

int ReceiveMatched(MpiHandle message, void* data, int bytes, MpiRequest* request) {
  MPI_Message matched = FromHandle<MPI_Message>(message);
  MPI_Request made;
  const int code = MPI_Imrecv(data, bytes, MPI_BYTE, &matched, &made);
  *request = ToHandle(made);
  return code;
}

}  // namespace
}  // namespace msrec

extern "C" __attribute__((visibility("default"))) const msrec::MpiShim* MsrecMpiShim() {
  using namespace msrec;  // NOLINT
  static const MpiShim shim = {
      kMpiShimVersion,
      ToHandle(MPI_REQUEST_NULL),
      Init,
      LibraryVersion,
      Finalize,
      ErrorText,
      Duplicate,
      Send,
      Receive,
      TestSome,
      Probe,
      ReceiveMatched,
  };
  return &shim;
}
