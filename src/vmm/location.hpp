// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "driver/cuda.hpp"

namespace cuvmm {

// Where physical memory lies: on a device, or on a NUMA node of the host. A neighbour is a device
// other than the one whose addresses the memory is mapped at.
class Location {
 public:
  static constexpr Location device(int ordinal) { return Location{Kind::Device, ordinal}; }
  static constexpr Location host(int numa_node) { return Location{Kind::HostNode, numa_node}; }

  constexpr bool is_device() const { return kind_ == Kind::Device; }
  constexpr bool is_host() const { return kind_ == Kind::HostNode; }
  constexpr int id() const { return id_; }  // device ordinal or NUMA node

  constexpr CUmemLocation cuda() const {
    return {is_device() ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA, id_};
  }
  std::string print() const;  // "device 0", "host node 1"

  friend constexpr bool operator==(const Location&, const Location&) = default;

 private:
  enum class Kind : std::uint8_t { Device, HostNode };
  constexpr Location(Kind kind, int id) : id_(id), kind_(kind) {}

  int id_;
  Kind kind_;
};

// Where memory is, as seen from the device at whose addresses it is mapped: on that device, or
// spilled to the host or a neighbour.
enum class Residency : std::uint8_t { Near, Far };

constexpr Residency residency(const Location& memory, int device) {
  return memory == Location::device(device) ? Residency::Near : Residency::Far;
}

}  // namespace cuvmm

template <>
struct std::hash<cuvmm::Location> {
  std::size_t operator()(const cuvmm::Location& where) const noexcept {
    return static_cast<std::size_t>(where.id()) * 2 + (where.is_host() ? 1 : 0);
  }
};
