// SPDX-License-Identifier: Apache-2.0
//
// The keyed hash decides where in memory a key is stored. The hash determines the key's bucket,
// probe sequence and tag. An attacker who chooses keys cannot know which keys share a bucket,
// because the hash depends on secrets. Each process obtains random secrets from the system when the
// library is loaded, so nothing outside the process may depend on the keyed hash. The keyed hash
// must not affect, for example, the contents of files, the order of rows or the choice of evicted
// rows. The hash for files, row order and eviction is in hash.h.
//
// A hash consists of three multiplications by secret odd numbers. Between two multiplications, a
// shift and an XOR mix the high bits into the low bits. The keyed hash takes as many instructions
// as the constant hash in hash.h. Each multiplication is a universal hash (multiply-shift;
// Dietzfelbinger et al. 1997): the products of two different words rarely have equal top bits. A
// single multiplication is not enough, because it maps an arithmetic progression to an arithmetic
// progression. Two multiplications and the shifts destroy every arithmetic progression. A third
// multiplication is necessary: in tests with only two multiplications, one seed in a hundred
// distributed the multiples of a power of two badly. The hash prevents an attacker from choosing
// keys that share buckets. The hash is not a cipher: it does not protect against an attacker who
// can observe hash values.
#pragma once

#include <cstdint>

namespace msrec {

// Two bijections with secret constants: one of 64-bit words, and one of 52-bit words.
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

  // Returns the hash of a word below 2^52.
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

// The secret factors of this process's hashes. The seed of the secrets is random, or comes from the
// environment variable MINDSPORE_REC_HASH_SEED (any text). If MINDSPORE_REC_HASH_SEED is set, a run
// can be repeated exactly, including its memory accesses. Batches, row indexes and tier indexes
// have separate secrets, because keys that are read in the order of one index would otherwise
// cluster in another index.
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
