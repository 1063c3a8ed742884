// SPDX-License-Identifier: Apache-2.0
#include "util/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace msrec {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// Slicing by 8 (Kounavis and Berry 2005). Byte b, followed by k zero bytes, changes the checksum by
// entry b of table k.
Tables MakeTables() {
  constexpr uint32_t kReflected = 0x82f63b78u;
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReflected : 0);
    tables[0][i] = crc;
  }
  for (uint32_t i = 0; i < 256; ++i) {
    for (size_t k = 1; k < 8; ++k) {
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xff];
    }
  }
  return tables;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ByInstruction(uint32_t crc, const void* data,
                                                         size_t size) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t state = static_cast<uint32_t>(~crc);
  for (; size >= 8; size -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    state = _mm_crc32_u64(state, word);
  }
  auto tail = static_cast<uint32_t>(state);
  for (; size > 0; --size, ++p) tail = _mm_crc32_u8(tail, *p);
  return ~tail;
}
bool HasInstruction() { return __builtin_cpu_supports("sse4.2") != 0; }
constexpr const char* kInstruction = "sse4.2";
#elif defined(__aarch64__) && defined(__linux__)
__attribute__((target("+crc"))) uint32_t ByInstruction(uint32_t crc, const void* data,
                                                       size_t size) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint32_t state = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    state = __crc32cd(state, word);
  }
  for (; size > 0; --size, ++p) state = __crc32cb(state, *p);
  return ~state;
}
bool HasInstruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
constexpr const char* kInstruction = "armv8";
#else
uint32_t ByInstruction(uint32_t crc, const void* data, size_t size) {
  return Crc32cByTables(crc, data, size);
}
bool HasInstruction() { return false; }
constexpr const char* kInstruction = "tables";
#endif

}  // namespace

uint32_t Crc32cByTables(uint32_t crc, const void* data, size_t size) {
  static const Tables t = MakeTables();
  const auto* p = static_cast<const unsigned char*>(data);
  uint32_t state = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    state ^= static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
             static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24;
    state = t[7][state & 0xff] ^ t[6][(state >> 8) & 0xff] ^ t[5][(state >> 16) & 0xff] ^
            t[4][state >> 24] ^ t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
  }
  for (; size > 0; --size, ++p) state = (state >> 8) ^ t[0][(state ^ *p) & 0xff];
  return ~state;
}

uint32_t Crc32c(uint32_t crc, const void* data, size_t size) {
  static const auto chosen = HasInstruction() ? &ByInstruction : &Crc32cByTables;
  return chosen(crc, data, size);
}

const char* Crc32cName() { return HasInstruction() ? kInstruction : "tables"; }

}  // namespace msrec
