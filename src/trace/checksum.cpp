// SPDX-License-Identifier: Apache-2.0
#include "trace/checksum.hpp"

#include <cpuid.h>

#include <array>
#include <cstring>

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

[[gnu::target("sse4.2")]] std::uint32_t crc32c_by_instruction(std::span<const std::byte> bytes,
                                                              std::uint32_t so_far) {
  std::uint64_t sum = ~so_far;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) sum = __builtin_ia32_crc32di(sum, word_at(at));
  auto short_sum = static_cast<std::uint32_t>(sum);
  for (; left > 0; ++at, --left) {
    short_sum = __builtin_ia32_crc32qi(short_sum, static_cast<unsigned char>(*at));
  }
  return ~short_sum;
}

// __builtin_cpu_supports() would link in code that queries every CPU feature.
bool processor_has_crc32() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSE4_2) != 0;
}

}  // namespace

// For processors from before 2008, so optimised for size.
std::uint32_t detail::crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t so_far) {
  std::uint32_t sum = ~so_far;
  for (const std::byte byte : bytes) {
    sum = (sum >> 8) ^ table[(sum ^ static_cast<std::uint32_t>(byte)) & 0xFF];
  }
  return ~sum;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t so_far) {
  static const bool has_instruction = processor_has_crc32();
  return has_instruction ? crc32c_by_instruction(bytes, so_far)
                         : detail::crc32c_by_table(bytes, so_far);
}

}  // namespace cuvmm
