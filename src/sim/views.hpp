// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/size.hpp"

namespace cuvmm::sim {

// A range of bytes in a file.
struct Extent {
  int file = -1;
  std::uint64_t offset = 0;
  Size size = 0;
};

enum class Access : std::uint8_t { None, Read, ReadWrite };

// The devices' views of device memory, and the host's, which shows only what was granted to the
// host.
class Views {
 public:
  // Reserves the addresses. Returns false if the system already uses some of them.
  static bool reserve(int devices);

  // Whether the range lies in the part of the device addresses that can be shown. Mappings beyond
  // it are refused.
  static bool can_show(std::uint64_t address, Size size);

  // Maps the extent at the device address, or unmaps it (Access::None). Returns false if the system
  // allows no more mappings.
  static bool show(int device, std::uint64_t address, const Extent& extent, Access access);
  static bool hide(int device, std::uint64_t address, Size size);
  // Changes the access to bytes that are shown already: much cheaper than hiding and showing them.
  static bool protect(int device, std::uint64_t address, Size size, Access access);
  static bool show_to_host(std::uint64_t address, const Extent& extent, Access access);

  // Where `device` accesses this address. Host addresses are their own view.
  static std::byte* at(int device, std::uint64_t address);
};

}  // namespace cuvmm::sim
