// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernel_module.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "util/crc32c.h"
#include "util/hash.h"

namespace msrec {
namespace cuda {
namespace {

constexpr char kRoot[] = "#include \"cuda/kernels.inl\"\n";

// Returns a number that changes with the sources, the compiler and the GPU.
std::string KeyOf(int compute_capability, int major, int minor) {
  uint64_t key = Mix64(static_cast<uint64_t>(compute_capability) << 32 |
                       static_cast<uint64_t>(major) << 16 | static_cast<uint64_t>(minor));
  for (const auto& [name, source] : KernelSources()) {
    for (const std::string& text : {name, source}) {
      for (const char c : text) key = Mix64(key ^ static_cast<unsigned char>(c));
      key = Mix64(key + 1);
    }
  }
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(key));
  return text;
}

uint32_t ChecksumOf(const std::string& code) { return Crc32c(0, code.data(), code.size()); }

// Reads machine code from a file and verifies the file's checksum. Returns "" if the file is
// damaged or does not belong to this user.
std::string ReadCode(const std::string& path) {
  struct stat about;
  if (stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != geteuid()) {
    return "";
  }
  std::ifstream file(path, std::ios::binary);
  uint32_t checksum = 0;
  file.read(reinterpret_cast<char*>(&checksum), sizeof(checksum));
  if (!file) return "";
  std::string code{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return !code.empty() && ChecksumOf(code) == checksum ? code : "";
}

// Creates all missing folders of a path.
void MakeFolders(const std::string& path) {
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    mkdir(path.substr(0, end).c_str(), 0755);
  }
  mkdir(path.c_str(), 0755);
}

// Writes a file atomically, so that an error leaves no incomplete file.
void WriteCode(const std::string& path, const std::string& code) {
  const std::string unfinished = path + "." + std::to_string(getpid());
  {
    std::ofstream file(unfinished, std::ios::binary);
    const uint32_t checksum = ChecksumOf(code);
    file.write(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
    file.write(code.data(), static_cast<std::streamsize>(code.size()));
    file.close();
    if (file && std::rename(unfinished.c_str(), path.c_str()) == 0) return;
  }
  std::remove(unfinished.c_str());
}

std::string LogOf(const Nvrtc& nvrtc, NvrtcProgram program) {
  size_t bytes = 0;
  CheckLibrary(nvrtc.nvrtcGetProgramLogSize(program, &bytes), "nvrtcGetProgramLogSize");
  std::string log(bytes, '\0');
  CheckLibrary(nvrtc.nvrtcGetProgramLog(program, &log[0]), "nvrtcGetProgramLog");
  return log;
}

std::string Compile(const Nvrtc& nvrtc, int compute_capability) {
  std::vector<const char*> names, sources;
  for (const auto& [name, source] : KernelSources()) {
    names.push_back(name.c_str());
    sources.push_back(source.c_str());
  }
  NvrtcProgram program = nullptr;
  CheckLibrary(
      nvrtc.nvrtcCreateProgram(&program, kRoot, "mindspore_rec.cu", static_cast<int>(names.size()),
                               sources.data(), names.data()),
      "nvrtcCreateProgram");
  const std::string architecture = "--gpu-architecture=sm_" + std::to_string(compute_capability);
  const char* const options[] = {architecture.c_str(), "--std=c++17"};
  const Result result = nvrtc.nvrtcCompileProgram(program, 2, options);
  std::string code;
  std::string log;
  if (result == 0) {
    size_t bytes = 0;
    CheckLibrary(nvrtc.nvrtcGetCUBINSize(program, &bytes), "nvrtcGetCUBINSize");
    code.resize(bytes);
    CheckLibrary(nvrtc.nvrtcGetCUBIN(program, &code[0]), "nvrtcGetCUBIN");
  } else {
    log = LogOf(nvrtc, program);
  }
  nvrtc.nvrtcDestroyProgram(&program);
  if (result != 0) {
    throw std::runtime_error("NVRTC cannot compile the kernels for compute capability " +
                             std::to_string(compute_capability) + ": " + log);
  }
  return code;
}

}  // namespace

std::string CompileKernels(const Nvrtc& nvrtc, int compute_capability,
                           const std::string& cache_directory, bool reads_cache) {
  int major = 0, minor = 0;
  CheckLibrary(nvrtc.nvrtcVersion(&major, &minor), "nvrtcVersion");
  const std::string path = cache_directory + "/sm_" + std::to_string(compute_capability) + "-" +
                           KeyOf(compute_capability, major, minor) + ".cubin";
  if (reads_cache && !cache_directory.empty()) {
    std::string code = ReadCode(path);
    if (!code.empty()) return code;
  }
  std::string code = Compile(nvrtc, compute_capability);
  if (!cache_directory.empty()) {
    MakeFolders(cache_directory);
    WriteCode(path, code);
  }
  return code;
}

}  // namespace cuda
}  // namespace msrec
