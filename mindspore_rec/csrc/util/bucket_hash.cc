// SPDX-License-Identifier: Apache-2.0
#include "util/bucket_hash.h"

#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "util/hash.h"

namespace msrec {
namespace {

constexpr uint64_t kStride = 0x9e3779b97f4a7c15ULL;

// Returns the inverse of an odd number modulo 2^64. Each round of Newton's iteration doubles the
// number of correct bits.
uint64_t Inverse(uint64_t odd) {
  uint64_t x = odd;
  for (int round = 0; round < 5; ++round) x *= 2 - odd * x;
  return x;
}

// Returns an odd factor with a medium number of set bits, because factors with few or many set bits
// hardly mix the bits.
uint64_t MixFactor(uint64_t* state) {
  for (;;) {
    const uint64_t factor = Mix64(*state += kStride) | 1;
    const int bits = __builtin_popcountll(factor);
    if (bits >= 20 && bits <= 44) return factor;
  }
}

uint64_t ProcessSeed() {
  if (const char* text = std::getenv("MINDSPORE_REC_HASH_SEED")) {
    return HashBytes(text, std::strlen(text));
  }
  uint64_t seed = 0;
#ifdef SYS_getrandom
  constexpr unsigned kDoNotWait = 1;  // GRND_NONBLOCK
  if (syscall(SYS_getrandom, &seed, sizeof seed, kDoNotWait) == sizeof seed) return seed;
#endif
  // If the system call is missing or would wait, combine the time, the process id, and the 16
  // random bytes that the kernel passes to each program.
  uint64_t words[2] = {};
  if (const auto* bytes = reinterpret_cast<const void*>(getauxval(AT_RANDOM))) {
    std::memcpy(words, bytes, sizeof words);
  }
  seed = Mix64(words[0]) ^ words[1];
  seed ^= static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return Mix64(seed ^ static_cast<uint64_t>(getpid()) << 32);
}

ProcessHashers NewHashers() {
  const uint64_t seed = ProcessSeed();
  return {BucketHasher(Mix64(seed + 1 * kStride)), BucketHasher(Mix64(seed + 2 * kStride)),
          BucketHasher(Mix64(seed + 3 * kStride))};
}

}  // namespace

BucketHasher::BucketHasher(uint64_t seed) {
  uint64_t state = seed;
  flip_ = Mix64(state += kStride);
  first_ = MixFactor(&state);
  second_ = MixFactor(&state);
  third_ = MixFactor(&state);
  first_inverse_ = Inverse(first_);
  second_inverse_ = Inverse(second_);
  third_inverse_ = Inverse(third_);
}

const ProcessHashers process_hashers = NewHashers();

}  // namespace msrec
