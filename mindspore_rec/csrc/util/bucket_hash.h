// SPDX-License-Identifier: Apache-2.0
//
// The keyed hash that decides where in memory a key is looked for: buckets, probe sequences, tags.
// An attacker who chooses keys cannot know which of them share a bucket, since the hash depends on
// secrets that each process draws from the system when the library is loaded. So nothing that
// leaves the process may depend on it: neither files nor the order of rows, nor which rows are
// evicted; hash.h has the hash for those.
//
// A hash is three multiplications by secret odd numbers, with a shift and exclusive or between them
// that brings high bits down: as many instructions as the constant hash has. Each multiplication
// spreads any two words over the top bits with the chances of a universal hash (multiply-shift;
// Dietzfelbinger et al. 1997) and leaves rows of equal distances what they were; two of them and
// the shifts leave no such pattern for the third. With one fewer, one seed in a hundred was bad at
// multiples of some power of two. It is meant to keep chosen keys from sharing buckets, not to be
// a cipher for those who can watch it at work.
#pragma once

#include <cstdint>

namespace msrec {

// The secrets of one family of bijections: of 64-bit words, and of words of 52 bits.
class BucketHasher {
 public:
  // Derives the secrets from a seed; equal seeds give equal hashes.
  explicit BucketHasher(uint64_t seed);

  uint64_t Hash(uint64_t word) const {
    uint64_t x = (word ^ flip_) * first_;
    x = (x ^ x >> 32) * second_;
    return (x ^ x >> 29) * third_;
  }
  uint64_t Unhash(uint64_t hash) const {
    uint64_t x = hash * third_inverse_;
    x = (x ^ x >> 29 ^ x >> 58) * second_inverse_;
    return ((x ^ x >> 32) * first_inverse_) ^ flip_;
  }

  static constexpr uint64_t kMask52 = (uint64_t{1} << 52) - 1;

  // The same for words below 2^52.
  uint64_t Hash52(uint64_t word) const {
    uint64_t x = ((word ^ flip_) * first_) & kMask52;
    x = ((x ^ x >> 26) * second_) & kMask52;
    return ((x ^ x >> 23) * third_) & kMask52;
  }
  uint64_t Unhash52(uint64_t hash) const {
    uint64_t x = (hash * third_inverse_) & kMask52;
    x = ((x ^ x >> 23 ^ x >> 46) * second_inverse_) & kMask52;
    return (((x ^ x >> 26) * first_inverse_) ^ flip_) & kMask52;
  }

 private:
  uint64_t flip_, first_, second_, third_;
  uint64_t first_inverse_, second_inverse_, third_inverse_;
};

// The secrets of this process. Their seed is random, or that of the environment variable
// MINDSPORE_REC_HASH_SEED (any text), with which a run can be repeated exactly, down to its memory
// accesses. The distinct keys of batches, indexes of rows and indexes of tiers each have their own,
// so that keys taken from one in its order do not crowd another.
struct ProcessHashers {
  BucketHasher batch, index, tier;
};
extern const ProcessHashers process_hashers;

inline uint64_t BatchHash(int64_t key) {
  return process_hashers.batch.Hash(static_cast<uint64_t>(key));
}
inline uint64_t IndexHash(int64_t key) {
  return process_hashers.index.Hash(static_cast<uint64_t>(key));
}

}  // namespace msrec
