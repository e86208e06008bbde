// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/size.hpp"

namespace cuvmm::sim {

// A stretch of bytes in a file.
struct Extent {
  int file = -1;
  std::uint64_t offset = 0;
  Size size = 0;
};

enum class Access : std::uint8_t { None, Read, ReadWrite };

// The devices' views of device memory, and the host's, which shows only what was granted to it.
class Views {
 public:
  // Reserves the addresses. False where the system has something there.
  static bool reserve(int devices);

  // How much of the device addresses can be shown: a mapping beyond it is refused.
  static bool can_show(std::uint64_t address, Size size);

  // Shows the extent at the device address, or hides what was there (Access::None). False where
  // the system has no more maps to give.
  static bool show(int device, std::uint64_t address, const Extent& extent, Access access);
  static bool hide(int device, std::uint64_t address, Size size);
  // Allows or forbids what is shown there: much cheaper than to hide it and show it again.
  static bool protect(int device, std::uint64_t address, Size size, Access access);
  static bool show_to_host(std::uint64_t address, const Extent& extent, Access access);

  // Where `device` finds this address. Host addresses are their own view.
  static std::byte* at(int device, std::uint64_t address);
};

}  // namespace cuvmm::sim
