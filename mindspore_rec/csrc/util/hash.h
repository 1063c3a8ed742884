// SPDX-License-Identifier: Apache-2.0
//
// Hashes on which files and other processes depend. The hashes in this file choose a key's shard,
// its worker and its counters in a sketch, and decide whether random admission admits the key. Each
// hash depends only on the function's arguments. Files and other processes rely on the hashes, so
// changing a hash changes the format.
//
// The hashes in this file can be inverted, so an attacker can choose keys whose hashes agree in any
// bits. To choose places in memory, use the keyed hash in bucket_hash.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msrec {

// MurmurHash3's 64-bit finalizer (Appleby). The hash is a bijection, so two keys never have the
// same hash. Mix64 is always inlined, so that files for different instruction sets share no copy of
// Mix64.
__attribute__((always_inline)) inline uint64_t Mix64(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

inline uint64_t HashKey(int64_t key) { return Mix64(static_cast<uint64_t>(key)); }

// Returns the key whose hash is `hash`.
inline int64_t UnhashKey(uint64_t hash) {
  hash ^= hash >> 33;
  hash *= 0x9cb4b2f8129337dbULL;  // the inverses modulo 2^64 of Mix64's factors
  hash ^= hash >> 33;
  hash *= 0x4f74430c22a54005ULL;
  hash ^= hash >> 33;
  return static_cast<int64_t>(hash);
}

// Returns the worker that owns a key: 0 .. workers - 1.
inline uint32_t OwnerOf(int64_t key, uint32_t workers) {
  // The hash is mixed once more, because a row's place within a worker already depends on the bits
  // of the unmixed hash.
  const uint64_t hash = Mix64(HashKey(key) ^ 0x9e3779b97f4a7c15ULL);
  return static_cast<uint32_t>((hash >> 32) * workers >> 32);
}

// FNV-1a over bytes, finished by Mix64. The hash is for short strings such as table names, not for
// bulk data.
inline uint64_t HashBytes(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t h = 0xcbf29ce484222325ULL;
  for (size_t i = 0; i < size; ++i) {
    h = (h ^ bytes[i]) * 0x100000001b3ULL;
  }
  return Mix64(h);
}

}  // namespace msrec
