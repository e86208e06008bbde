// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.hpp"
#include "driver/cuda.hpp"

namespace cuvmm {

enum class Access : std::uint8_t { None, Read, ReadWrite };

// The devices that may access memory through one mapping, each read-only or read-write. Two words,
// passed by value. cuvmm does not serve devices beyond the 64th.
class AccessSet {
 public:
  static constexpr int most_devices = 64;

  static constexpr AccessSet none() { return {}; }
  static constexpr AccessSet of(int device, Access access = Access::ReadWrite) {
    return AccessSet{}.with(device, access);
  }
  constexpr AccessSet with(int device, Access access = Access::ReadWrite) const {
    AccessSet changed = *this;
    if (device < 0 || device >= most_devices) return changed;
    const std::uint64_t bit = std::uint64_t{1} << device;
    changed.readers_ = access == Access::None ? readers_ & ~bit : readers_ | bit;
    changed.writers_ = access == Access::ReadWrite ? writers_ | bit : writers_ & ~bit;
    return changed;
  }

  constexpr Access of_device(int device) const {
    if (device < 0 || device >= most_devices) return Access::None;
    const std::uint64_t bit = std::uint64_t{1} << device;
    if ((writers_ & bit) != 0) return Access::ReadWrite;
    return (readers_ & bit) != 0 ? Access::Read : Access::None;
  }
  constexpr bool is_none() const { return readers_ == 0; }

  // The union of both sets.
  friend constexpr AccessSet operator|(const AccessSet& a, const AccessSet& b) {
    AccessSet both;
    both.readers_ = a.readers_ | b.readers_;
    both.writers_ = a.writers_ | b.writers_;
    return both;
  }
  friend constexpr bool operator==(const AccessSet&, const AccessSet&) = default;

  std::string print() const;  // "0:rw 1:r", "none"

 private:
  std::uint64_t readers_ = 0;  // may read; includes the writers
  std::uint64_t writers_ = 0;
};

// The cuMemSetAccess descriptors that change access from `before` to `after`: one for each device
// in either set, so that a device that drops out loses its access.
class AccessChange {
 public:
  AccessChange(const AccessSet& before, const AccessSet& after);
  std::span<const CUmemAccessDesc> lines() const { return {lines_.data(), count_}; }

 private:
  std::array<CUmemAccessDesc, AccessSet::most_devices> lines_;
  std::size_t count_ = 0;
};

}  // namespace cuvmm
