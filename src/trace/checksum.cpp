// SPDX-License-Identifier: Apache-2.0
#include "trace/checksum.hpp"

#include <array>
#include <cstring>

#include "base/made_once.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace cuvmm {
namespace {

// The effect of each byte value on the checksum.
constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> made{};
  for (std::uint32_t byte = 0; byte < made.size(); ++byte) {
    std::uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0x82F63B78u : 0);
    made[byte] = sum;
  }
  return made;
}

constexpr std::array<std::uint32_t, 256> table = make_table();

std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

#if defined(__x86_64__)
#define CUVMM_CRC32_TARGET "sse4.2"
#define CUVMM_CRC32_OF_WORD __builtin_ia32_crc32di
#define CUVMM_CRC32_OF_BYTE __builtin_ia32_crc32qi
using WordSum = std::uint64_t;

// __builtin_cpu_supports() would link in code that queries every CPU feature.
bool processor_has_crc32() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSE4_2) != 0;
}
#elif defined(__aarch64__)
#define CUVMM_CRC32_TARGET "+crc"
#define CUVMM_CRC32_OF_WORD __builtin_aarch64_crc32cx
#define CUVMM_CRC32_OF_BYTE __builtin_aarch64_crc32cb
using WordSum = std::uint32_t;

bool processor_has_crc32() {
  return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#endif

[[gnu::target(CUVMM_CRC32_TARGET)]] std::uint32_t crc32c_by_instruction(
    std::span<const std::byte> bytes, std::uint32_t so_far) {
  WordSum sum = ~so_far;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) sum = CUVMM_CRC32_OF_WORD(sum, word_at(at));
  auto short_sum = static_cast<std::uint32_t>(sum);
  for (; left > 0; ++at, --left) {
    short_sum = CUVMM_CRC32_OF_BYTE(short_sum, static_cast<unsigned char>(*at));
  }
  return ~short_sum;
}

}  // namespace

// For processors from before 2008, and the first ones of aarch64; so optimised for size.
std::uint32_t detail::crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t so_far) {
  std::uint32_t sum = ~so_far;
  for (const std::byte byte : bytes) {
    sum = (sum >> 8) ^ table[(sum ^ static_cast<std::uint32_t>(byte)) & 0xFF];
  }
  return ~sum;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t so_far) {
  static constinit AskedOnce has_instruction;
  return has_instruction.get(&processor_has_crc32) ? crc32c_by_instruction(bytes, so_far)
                                                   : detail::crc32c_by_table(bytes, so_far);
}

}  // namespace cuvmm
