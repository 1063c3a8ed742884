// SPDX-License-Identifier: Apache-2.0
//
// Hashes used by the table. All are pure functions of their arguments: files and other processes
// may rely on them, so changing one is a change of format.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msrec {

// MurmurHash3's 64-bit finalizer (Appleby). A bijection: two keys never share a hash.
inline uint64_t Mix64(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

inline uint64_t HashKey(int64_t key) { return Mix64(static_cast<uint64_t>(key)); }

// FNV-1a over bytes, finished by Mix64. For short strings such as table names, not for bulk data.
inline uint64_t HashBytes(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t h = 0xcbf29ce484222325ULL;
  for (size_t i = 0; i < size; ++i) {
    h = (h ^ bytes[i]) * 0x100000001b3ULL;
  }
  return Mix64(h);
}

}  // namespace msrec
