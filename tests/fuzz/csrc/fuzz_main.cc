// SPDX-License-Identifier: Apache-2.0
//
// Runs targets of fuzzing: msrec_fuzz CORPORA [--runs N] [--seconds S] [--seed N] [TARGET]...
//
// Each target is run on the files of CORPORA/<target>/, then on changes of them, as many as said or
// for its share of the time. Without a target: on all. A finding ends the program with the input in
// a file finding-<target>, which belongs into the corpus once it is mended. Inputs are changed by
// chance here; by_coverage.cc has libFuzzer choose them.
#include <sanitizer/common_interface_defs.h>
#include <sys/time.h>
#include <time.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <vector>

#include "fuzzer.h"

namespace {

constexpr size_t kMostBytes = 4096;  // of an input
constexpr int kHangSeconds = 5;      // of the processor: a sanitizer makes five of one

using Random = std::mt19937_64;

std::string current, current_target;

void Keep() {
  const std::string path = "finding-" + current_target;
  std::ofstream(path, std::ios::binary) << current;
  std::fprintf(stderr, "target %s: the input of %zu bytes is in %s\n", current_target.c_str(),
               current.size(), path.c_str());
}

// By a limit of time or, with UBSAN_OPTIONS=abort_on_error=1, by undefined behaviour.
void Ended(int signal) {
  if (signal == SIGPROF) std::fprintf(stderr, "not done after %d seconds\n", kHangSeconds);
  Keep();
  std::_Exit(1);
}

void Run(msrec::FuzzTarget target, const std::string& input) {
  current = input;
  const itimerval limit = {{0, 0}, {kHangSeconds, 0}}, none = {};
  setitimer(ITIMER_PROF, &limit, nullptr);
  try {
    // Behind its end is nothing that may be read.
    const std::vector<uint8_t> exact(input.begin(), input.end());
    target(exact.data(), exact.size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "target %s: %s\n", current_target.c_str(), error.what());
    Keep();
    std::_Exit(1);
  }
  setitimer(ITIMER_PROF, &none, nullptr);
}

std::string Changed(std::string data, const std::vector<std::string>& corpus, Random* random) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : (*random)() % n; };
  static const uint64_t kNumbers[] = {0,      1,       0x7f,         0xff,          0xffff,
                                      1 << 9, 1 << 12, 1ull << 31,   0xffffffffull, 1ull << 32,
                                      1 << 3, 1 << 16, ~uint64_t{0}, 1ull << 62,    1ull << 63};
  for (size_t n = 1 + below(4); n > 0; --n) {
    const size_t at = below(data.size() + 1);
    switch (below(7)) {
      case 0:
        if (!data.empty()) data[below(data.size())] ^= static_cast<char>(1 << below(8));
        break;
      case 1:
        if (!data.empty()) data[below(data.size())] = static_cast<char>(below(256));
        break;
      case 2: {
        const uint64_t number = kNumbers[below(std::size(kNumbers))];
        const size_t bytes = size_t{1} << below(4);
        const std::string text(reinterpret_cast<const char*>(&number), bytes);
        data.replace(at, std::min(bytes, data.size() - at), text);
        break;
      }
      case 3:
        data.erase(at, 1 + below(16));
        break;
      case 4: {
        std::string more(1 + below(14), '\0');
        for (char& c : more) c = static_cast<char>(below(256));
        data.insert(at, more);
        break;
      }
      case 5: {
        const std::string& other = corpus[below(corpus.size())];
        data = data.substr(0, at) + other.substr(below(other.size() + 1));
        break;
      }
      default: {
        const std::string digits = std::to_string(kNumbers[below(std::size(kNumbers))]);
        data.insert(at, digits);
      }
    }
  }
  return data.substr(0, kMostBytes);
}

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void RunTarget(const std::string& name, const std::string& corpora, uint64_t seed, uint64_t runs,
               double seconds) {
  namespace fs = std::filesystem;
  current_target = name;
  const msrec::FuzzTarget target = msrec::FuzzTargets().at(name);
  std::vector<std::string> corpus;
  std::set<fs::path> paths;
  for (const auto& file : fs::directory_iterator(corpora + "/" + name)) paths.insert(file.path());
  for (const fs::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    Run(target, corpus.back());
  }
  if (corpus.empty()) corpus.emplace_back();
  Random random(seed);
  const double begin = Now();
  uint64_t count = 0;
  for (; count < runs && Now() < begin + seconds; ++count) {
    Run(target, Changed(corpus[random() % corpus.size()], corpus, &random));
  }
  std::printf("target %s: %zu files, %llu inputs in %.0f s, seed %llu\n", name.c_str(),
              corpus.size(), static_cast<unsigned long long>(count), Now() - begin,
              static_cast<unsigned long long>(seed));
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t runs = ~uint64_t{0}, seed = 7;
  double seconds = 60;
  std::vector<std::string> names;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool option = argument == "--runs" || argument == "--seed" || argument == "--seconds";
    if (option && i + 1 == argc) return std::fprintf(stderr, "%s needs a number\n", argv[i]), 2;
    if (argument == "--runs") {
      runs = std::stoull(argv[++i]);
    } else if (argument == "--seed") {
      seed = std::stoull(argv[++i]);
    } else if (argument == "--seconds") {
      seconds = std::stod(argv[++i]);
    } else {
      names.push_back(argument);
    }
  }
  if (argc < 2) return std::fprintf(stderr, "usage: %s CORPORA [OPTIONS] [TARGET]...\n", *argv), 2;
  if (names.empty()) {
    for (const auto& [name, target] : msrec::FuzzTargets()) names.push_back(name);
  }
  __sanitizer_set_death_callback(Keep);
  for (const int signal : {SIGPROF, SIGABRT}) std::signal(signal, Ended);
  const double share = seconds / static_cast<double>(names.size());
  for (const std::string& name : names) RunTarget(name, argv[1], seed, runs, share);
}
