// SPDX-License-Identifier: Apache-2.0
// Address layout of the process. Device addresses are a range of the process's own address space
// that the host may not touch, so host code that dereferences device memory faults. Each device
// sees device memory through a view: an address range of the same layout at a fixed distance, in
// which the bytes of a mapping appear with the access that this device was granted. Kernels and
// copies access memory through views.
#pragma once

#include <cstdint>

#include "base/size.hpp"

namespace cuvmm::sim {

#if defined(__SANITIZE_THREAD__)
// TSan tracks only a few terabytes of memory, so all ranges are smaller under it.
inline constexpr std::uint64_t device_addresses_begin = 0x7e80'0000'0000;
inline constexpr Size device_addresses_size = 448 * GiB;
inline constexpr Size device_addresses_below_heap = device_addresses_size;
inline constexpr std::uint64_t views_begin = device_addresses_begin + device_addresses_size;
inline constexpr Size views_size = 448 * GiB;
inline constexpr Size showable_addresses_size = 64 * GiB;
#else
// Also for programs built with AddressSanitizer, which keeps the addresses below 17 TiB for itself,
// and those from 96 to 100 TiB for its heap, or in newer versions those from 80 to 84 TiB. Programs
// are linked to 85 TiB, and the system maps from 128 TiB downwards.
inline constexpr std::uint64_t device_addresses_begin = 17 * TiB;
inline constexpr Size device_addresses_size = 67 * TiB;
inline constexpr Size device_addresses_below_heap = 63 * TiB;
inline constexpr std::uint64_t views_begin = 101 * TiB;
inline constexpr Size views_size = 24 * TiB;
// A reservation larger than this does not use the first part of the device addresses. Only that
// part can be shown in views, and a program may reserve far more than it ever maps.
inline constexpr Size showable_addresses_size = 3 * TiB;
#endif

// device_addresses_size, or what a sanitizer's heap leaves of it. Set once, by Views::reserve().
extern Size usable_device_addresses;

inline bool is_device_address(std::uint64_t address) {
  return address - device_addresses_begin < usable_device_addresses;
}

// Whether bytes there belong to a chunk: the host sees them at device addresses, devices in views.
inline bool is_of_a_chunk(std::uint64_t address) {
  return is_device_address(address) || address - views_begin < views_size;
}

}  // namespace cuvmm::sim
