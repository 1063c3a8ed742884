// SPDX-License-Identifier: Apache-2.0
//
// The interface of the shim library: the few functions of MPI that channels need, as a table of C
// functions. The shim alone is compiled against mpi.h and linked to MPI, and it is opened under a
// launcher only, so that the native core neither needs MPI nor knows which one it is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msrec {

constexpr int kMpiShimVersion = 1;
constexpr const char* kMpiShimSymbol = "MsrecMpiShim";
constexpr int kMpiAnySource = -1;

// A request of MPI; which value means "none" is MPI's affair (`null_request`).
using MpiRequest = uintptr_t;
using MpiHandle = uintptr_t;

// Functions that return int return 0 or MPI's error code, which `error_text` explains.
struct MpiShim {
  int version;  // kMpiShimVersion
  MpiRequest null_request;

  // Starts MPI for calls of many threads, unless somebody has started it before (`started` is 0
  // then); `threads_are_safe` is 0 where it was started for fewer.
  int (*init)(int* rank, int* size, int* threads_are_safe, int* started);
  int (*library_version)(char* text, int capacity);
  int (*finalize)();
  void (*error_text)(int code, char* text, int capacity);

  // Duplicates the communicator of all workers; its errors are returned.
  int (*duplicate)(MpiHandle* communicator);
  int (*send)(MpiHandle communicator, const void* data, int bytes, int to, int tag,
              MpiRequest* request);
  int (*receive)(MpiHandle communicator, void* data, int bytes, int from, int tag,
                 MpiRequest* request);
  // Completes some of `n` requests, which become null_request: `done` of them, whose places are in
  // `places`, with the error of each in `errors` and, of receiving ones, the bytes received.
  // `done` is -1 where all were null before.
  int (*test_some)(int n, MpiRequest* requests, int* done, int* places, int* errors, int* bytes);
  // Takes the next message of the tag, if one has come; `receive_matched` gets its data.
  int (*probe)(MpiHandle communicator, int from, int tag, int* found, int* sender, int* bytes,
               MpiHandle* message);
  int (*receive_matched)(MpiHandle message, void* data, int bytes, MpiRequest* request);
};

// The function that the shim exports as kMpiShimSymbol.
using MpiShimFunction = const MpiShim* (*)();

}  // namespace msrec
