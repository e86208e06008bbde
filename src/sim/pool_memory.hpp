// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>

#include "base/size.hpp"
#include "sim/address_space.hpp"
#include "sim/cuda.hpp"

namespace cuvmm::sim {

class Device;

// The addresses of a pool and the memory behind some of them, in pieces of 32 MiB as in the real
// driver (measured). Not thread-safe: guarded by the lock of its pool.
class PoolMemory {
 public:
  // Uses memory of the device, or of the host if `device` is nullptr.
  explicit PoolMemory(Device* device);
  ~PoolMemory();
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

  Size piece_size() const { return piece_size_; }
  Size mapped_bytes() const { return mapped_bytes_; }

  // Whole pieces without memory, by address.
  const std::map<CUdeviceptr, Size>& unmapped() const { return unmapped_; }
  // Adds addresses: one range of at least that size.
  bool add_addresses(Size at_least);

  // Maps memory behind these whole pieces, which must have none. Maps all of them, or none if the
  // device is full.
  bool map(CUdeviceptr address, Size size);
  void unmap(CUdeviceptr address, Size size);

  Access access_of(int who) const { return access_[static_cast<std::size_t>(who)]; }
  CUresult set_access(int who, Access access);

 private:
  bool map_piece(CUdeviceptr address);

  Device* const device_;
  const Size piece_size_;
  Size mapped_bytes_ = 0;
  AccessTable access_{};
  std::map<CUdeviceptr, Size> reservations_;
  std::map<CUdeviceptr, Size> unmapped_;
};

}  // namespace cuvmm::sim
