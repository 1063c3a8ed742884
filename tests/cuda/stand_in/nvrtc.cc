// SPDX-License-Identifier: Apache-2.0
//
// NVRTC: takes the sources, and makes code that the stand-in's driver knows again.
#include <cstring>
#include <string>

#include "stand_in.h"

struct msrec::cuda::NvrtcProgramTag {
  bool compiled = false;
};

namespace {

constexpr char kCode[] = "stand-in code";
constexpr int kInvalidOption = 5, kInvalidInput = 3;

}  // namespace

namespace msrec {
namespace cuda {

using namespace stand_in;

MSREC_NVRTC_FUNCTIONS(STAND_IN_DECLARE)

Result nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return kSuccess;
}

Result nvrtcCreateProgram(NvrtcProgram* program, const char* source, const char*, int headers,
                          const char* const* texts, const char* const* names) {
  bool has_root = false;
  for (int i = 0; i < headers; ++i) {
    const std::string include = std::string("#include \"") + names[i] + '"';
    has_root = has_root || (std::strstr(source, include.c_str()) != nullptr && *texts[i] != 0);
  }
  if (!has_root) return kInvalidInput;
  *program = new NvrtcProgramTag;
  return kSuccess;
}

Result nvrtcCompileProgram(NvrtcProgram program, int options, const char* const* given) {
  if (options < 1 || std::strcmp(given[0], "--gpu-architecture=sm_90") != 0) return kInvalidOption;
  program->compiled = true;
  return kSuccess;
}

Result nvrtcDestroyProgram(NvrtcProgram* program) {
  delete *program;
  *program = nullptr;
  return kSuccess;
}

Result nvrtcGetProgramLogSize(NvrtcProgram, size_t* bytes) {
  *bytes = 1;
  return kSuccess;
}

Result nvrtcGetProgramLog(NvrtcProgram, char* log) {
  *log = 0;
  return kSuccess;
}

Result nvrtcGetCUBINSize(NvrtcProgram program, size_t* bytes) {
  *bytes = sizeof(kCode);
  return program->compiled ? kSuccess : kInvalidInput;
}

Result nvrtcGetCUBIN(NvrtcProgram, char* code) {
  std::memcpy(code, kCode, sizeof(kCode));
  return kSuccess;
}

}  // namespace cuda
}  // namespace msrec
