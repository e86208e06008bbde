// SPDX-License-Identifier: Apache-2.0
#include "node/message.hpp"

#include "node/codec.hpp"

namespace cuvmm::node {

std::vector<std::byte> encode(const NodeMessage& message) {
  return encode_as<1>(message);
}

Result<NodeMessage> decode(std::span<const std::byte> packet) {
  return decode_as<1, NodeMessage>(packet);
}

std::optional<std::uint16_t> common_version(const Greeting& greeting) {
  const std::uint16_t version = std::min(greeting.newest, newest_protocol);
  if (version < greeting.oldest || version < oldest_protocol) return {};
  return version;
}

}  // namespace cuvmm::node
