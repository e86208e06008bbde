// SPDX-License-Identifier: Apache-2.0
// The parser of messages from other processes, for libFuzzer: the first byte is the number of
// descriptors that came with the packet, the rest is the packet. ./dev fuzz runs it; the sharing
// tests read its corpus (tests/fuzz/share_message) and mutations of it.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "share/message.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cuvmm::share;
  if (size == 0) return 0;
  const auto packet = std::as_bytes(std::span{data + 1, size - 1});
  const auto read = decode(packet, data[0]);
  if (!read.ok()) return 0;
  std::array<std::byte, longest_packet> room;
  const auto again = encode(*read, room);
  const bool same =
      again.size() == packet.size() && std::memcmp(again.data(), packet.data(), again.size()) == 0;
  if (!same) std::abort();
  return 0;
}
