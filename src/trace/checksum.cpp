// SPDX-License-Identifier: Apache-2.0
#include "trace/checksum.hpp"

#include <array>
#include <cstring>

namespace cuvmm {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// Row k holds what a byte does to the checksum when k bytes follow it, so that eight bytes take
// eight look-ups that do not wait for each other.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0x82F63B78u : 0);
    tables[0][byte] = sum;
  }
  for (std::size_t row = 1; row < tables.size(); ++row) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[row - 1][byte];
      tables[row][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables tables = make_tables();

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

}  // namespace

std::uint32_t detail::crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t so_far) {
  std::uint32_t sum = ~so_far;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    const std::uint64_t word = word_at(at) ^ sum;
    sum = 0;
    for (std::size_t byte = 0; byte < 8; ++byte) {
      sum ^= tables[7 - byte][(word >> (8 * byte)) & 0xFF];
    }
  }
  for (; left > 0; ++at, --left) {
    sum = (sum >> 8) ^ tables[0][(sum ^ static_cast<std::uint32_t>(*at)) & 0xFF];
  }
  return ~sum;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t so_far) {
  return __builtin_cpu_supports("sse4.2") ? crc32c_by_instruction(bytes, so_far)
                                          : detail::crc32c_by_table(bytes, so_far);
}

}  // namespace cuvmm
