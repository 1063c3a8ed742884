// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>

namespace msrec {

// std::memcpy and std::memset that take null where there are no bytes, as empty buffers have it.
inline void CopyBytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

inline void ZeroBytes(void* to, size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
}

// Return the bytes of a message's part in front of one that must begin at a multiple of 8.
inline size_t Padded(size_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace msrec
