// SPDX-License-Identifier: Apache-2.0
// Where things lie in the process. Device addresses are a stretch of the process' own address
// space that the host may not touch, so that host code which dereferences device memory faults.
// Each device sees device memory through a view: the same stretch at a fixed distance, where a
// mapping's bytes appear with the access that this device was granted. Kernels and copies work on
// views.
#pragma once

#include <cstdint>

#include "base/size.hpp"

namespace cuvmm::sim {

#if defined(__SANITIZE_THREAD__)
// TSan follows memory only inside a few terabytes, so everything is smaller there.
inline constexpr std::uint64_t device_addresses_begin = 0x7e80'0000'0000;
inline constexpr Size device_addresses_size = 448 * GiB;
inline constexpr std::uint64_t views_begin = device_addresses_begin + device_addresses_size;
inline constexpr Size views_size = 448 * GiB;
inline constexpr Size everyday_addresses_size = 64 * GiB;
#else
// Between what programs are linked at (85 TiB) and where the system puts its own mappings (from
// 128 TiB down); below lies what AddressSanitizer keeps for itself.
inline constexpr std::uint64_t device_addresses_begin = 17 * TiB;
inline constexpr Size device_addresses_size = 67 * TiB;
#if defined(__SANITIZE_ADDRESS__)
// AddressSanitizer's own heap lies from 96 to 100 TiB.
inline constexpr std::uint64_t views_begin = 101 * TiB;
inline constexpr Size views_size = 19 * TiB;
#else
inline constexpr std::uint64_t views_begin = 88 * TiB;
inline constexpr Size views_size = 32 * TiB;
#endif
// A reservation larger than this leaves the first stretch to the others: only so much of the
// device addresses can be shown, and a program may reserve far more than it ever maps.
inline constexpr Size everyday_addresses_size = 3 * TiB;
#endif

constexpr bool is_device_address(std::uint64_t address) {
  return address - device_addresses_begin < device_addresses_size;
}

}  // namespace cuvmm::sim
