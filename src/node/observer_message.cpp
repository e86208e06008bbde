// SPDX-License-Identifier: Apache-2.0
#include "node/observer_message.hpp"

#include "node/codec.hpp"

namespace cuvmm::node {

std::vector<std::byte> encode_observed(const ObserverMessage& message) {
  return encode_as<first_observer_kind>(message);
}

Result<ObserverMessage> decode_observed(std::span<const std::byte> packet) {
  return decode_as<first_observer_kind, ObserverMessage>(packet);
}

}  // namespace cuvmm::node
