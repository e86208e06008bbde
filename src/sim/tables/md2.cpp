// SPDX-License-Identifier: Apache-2.0
#include "sim/tables/md2.hpp"

#include <algorithm>

namespace cuvmm::sim {
namespace {

constexpr std::size_t block_size = 16;
constexpr int rounds = 18;

// The permutation of RFC 1319, derived from the digits of pi.
constexpr std::uint8_t substitution[256] = {
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,  98,  167, 5,
    243, 192, 199, 115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,  155, 87,  60,  253, 212,
    224, 22,  103, 66,  111, 24,  138, 23,  229, 18,  190, 78,  196, 214, 218, 158, 222, 73,  160,
    251, 245, 142, 187, 47,  238, 122, 169, 104, 121, 145, 21,  178, 7,   63,  148, 194, 16,  137,
    11,  34,  95,  33,  128, 127, 93,  154, 90,  144, 50,  39,  53,  62,  204, 231, 191, 247, 151,
    3,   255, 25,  48,  179, 72,  165, 181, 209, 215, 94,  146, 42,  172, 86,  170, 198, 79,  184,
    56,  210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,  100,
    113, 135, 32,  134, 91,  207, 101, 230, 45,  168, 2,   27,  96,  37,  173, 174, 176, 185, 246,
    28,  70,  97,  105, 52,  64,  126, 15,  85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249,
    206, 186, 197, 234, 38,  44,  83,  13,  110, 133, 40,  132, 9,   211, 223, 205, 244, 65,  129,
    77,  82,  106, 220, 55,  200, 108, 193, 171, 250, 36,  225, 123, 8,   12,  189, 177, 74,  120,
    136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254, 59,  0,   29,  57,  242, 239, 183, 14,
    102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,  49,  68,  80,  180, 143, 237, 31,
    26,  219, 153, 141, 51,  159, 17,  131, 20};

std::vector<std::uint8_t> padded(std::vector<std::uint8_t> message) {
  const std::size_t padding = block_size - message.size() % block_size;
  message.insert(message.end(), padding, static_cast<std::uint8_t>(padding));
  return message;
}

Md2Digest checksum_of(const std::vector<std::uint8_t>& message) {
  Md2Digest checksum{};
  std::uint8_t last = 0;
  for (std::size_t i = 0; i < message.size(); ++i) {
    std::uint8_t& at = checksum[i % block_size];
    at ^= substitution[message[i] ^ last];
    last = at;
  }
  return checksum;
}

void add_block(std::array<std::uint8_t, 3 * block_size>& state, const std::uint8_t* block) {
  for (std::size_t i = 0; i < block_size; ++i) {
    state[block_size + i] = block[i];
    state[2 * block_size + i] = state[i] ^ block[i];
  }
  std::uint8_t last = 0;
  for (int round = 0; round < rounds; ++round) {
    for (std::uint8_t& byte : state) last = byte ^= substitution[last];
    last = static_cast<std::uint8_t>(last + round);
  }
}

std::vector<std::uint8_t> masked(const Md2Digest& key, std::uint8_t mask) {
  std::vector<std::uint8_t> bytes(key.begin(), key.end());
  for (std::uint8_t& byte : bytes) byte ^= mask;
  return bytes;
}

}  // namespace

Md2Digest md2(const std::vector<std::uint8_t>& message) {
  std::vector<std::uint8_t> blocks = padded(message);
  const Md2Digest checksum = checksum_of(blocks);
  blocks.insert(blocks.end(), checksum.begin(), checksum.end());
  std::array<std::uint8_t, 3 * block_size> state{};
  for (std::size_t at = 0; at < blocks.size(); at += block_size) {
    add_block(state, blocks.data() + at);
  }
  Md2Digest digest{};
  std::copy_n(state.begin(), digest.size(), digest.begin());
  return digest;
}

Md2Digest hmac_md2(const Md2Digest& key, const std::vector<std::uint8_t>& message) {
  constexpr std::uint8_t inner_mask = 0x36;
  constexpr std::uint8_t outer_mask = 0x5c;
  std::vector<std::uint8_t> inner = masked(key, inner_mask);
  inner.insert(inner.end(), message.begin(), message.end());
  const Md2Digest digest = md2(inner);
  std::vector<std::uint8_t> outer = masked(key, outer_mask);
  outer.insert(outer.end(), digest.begin(), digest.end());
  return md2(outer);
}

}  // namespace cuvmm::sim
