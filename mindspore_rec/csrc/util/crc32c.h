// SPDX-License-Identifier: Apache-2.0
//
// CRC32C (Castagnoli, polynomial 0x1EDC6F41), the checksum of this library's files. The processor's
// own instruction (SSE4.2, ARMv8 CRC) is chosen at run time; other processors use tables. All
// implementations return the same value. Any thread may call the functions in this file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msrec {

// Returns the checksum of earlier bytes followed by the bytes of `data`; `crc` is the checksum of
// the earlier bytes, or 0 if there are none. For example, Crc32c(Crc32c(0, a), b) is the checksum
// of a followed by b.
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

// Does the same as Crc32c(), but always uses tables. For tests.
uint32_t Crc32cByTables(uint32_t crc, const void* data, size_t size);

// Returns the implementation in use: "sse4.2", "armv8" or "tables".
const char* Crc32cName();

}  // namespace msrec
