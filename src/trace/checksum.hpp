// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cuvmm {

// CRC-32C (Castagnoli), for which processors have an instruction. `so_far` continues the checksum
// of preceding bytes.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t so_far = 0);

namespace detail {
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t so_far);
}  // namespace detail

}  // namespace cuvmm
