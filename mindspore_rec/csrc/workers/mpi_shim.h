// SPDX-License-Identifier: Apache-2.0
//
// The interface of the shim library: the few MPI functions that channels need, as a table of C
// functions. Only the shim is compiled with mpi.h and linked to MPI, and the shim is opened only
// under a launcher. The native core does not need MPI, and works with any MPI library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msrec {

constexpr int kMpiShimVersion = 1;
constexpr const char* kMpiShimSymbol = "MsrecMpiShim";
constexpr int kMpiAnySource = -1;

// An MPI request. The value that means "no request" depends on the MPI library; see `null_request`.
using MpiRequest = uintptr_t;
using MpiHandle = uintptr_t;

// A function that returns int returns 0 or MPI's error code; `error_text` explains the code.
struct MpiShim {
  int version;  // kMpiShimVersion
  MpiRequest null_request;

  // Starts MPI for calls from many threads. `started` becomes 1 if this call started MPI, and 0 if
  // MPI was already started. `threads_are_safe` is 0 if MPI does not allow calls from many threads.
  int (*init)(int* rank, int* size, int* threads_are_safe, int* started);
  int (*library_version)(char* text, int capacity);
  int (*finalize)();
  void (*error_text)(int code, char* text, int capacity);

  // Duplicates the communicator of all workers. If a call with the new communicator fails, the call
  // returns an error and does not end the process.
  int (*duplicate)(MpiHandle* communicator);
  int (*send)(MpiHandle communicator, const void* data, int bytes, int to, int tag,
              MpiRequest* request);
  int (*receive)(MpiHandle communicator, void* data, int bytes, int from, int tag,
                 MpiRequest* request);
  // Completes some of `n` requests; completed requests become null_request. `done` becomes the
  // number of completed requests, and `places` contains their indexes. `errors` contains an error
  // code for each completed request; `bytes` contains the number of received bytes for each request
  // that receives. If all requests are null_request before the call, `done` becomes -1.
  int (*test_some)(int n, MpiRequest* requests, int* done, int* places, int* errors, int* bytes);
  // If a message that matches `from` and `tag` has arrived, takes the message. `receive_matched`
  // then receives the message's data.
  int (*probe)(MpiHandle communicator, int from, int tag, int* found, int* sender, int* bytes,
               MpiHandle* message);
  int (*receive_matched)(MpiHandle message, void* data, int bytes, MpiRequest* request);
};

// The function that the shim exports as kMpiShimSymbol.
using MpiShimFunction = const MpiShim* (*)();

}  // namespace msrec
