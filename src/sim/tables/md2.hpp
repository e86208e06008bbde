// SPDX-License-Identifier: Apache-2.0
// The message digest MD2 (RFC 1319), and the keyed digest HMAC (RFC 2104) built on it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cuvmm::sim {

using Md2Digest = std::array<std::uint8_t, 16>;

Md2Digest md2(const std::vector<std::uint8_t>& message);
Md2Digest hmac_md2(const Md2Digest& key, const std::vector<std::uint8_t>& message);

}  // namespace cuvmm::sim
