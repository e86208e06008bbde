// SPDX-License-Identifier: Apache-2.0
// Sends messages to the service.
#pragma once

#include "lease/leases.hpp"
#include "node/codec.hpp"

namespace cuvmm::lease {

inline constexpr std::uint64_t a_millisecond = 1'000'000;  // on the clock of now_ns()

template <class Kind>
void Leases::send(const Kind& message) {
  send_packet(node::encode_one(message));
}

}  // namespace cuvmm::lease
