// SPDX-License-Identifier: Apache-2.0
// The blocks that back the driver's own allocations.
#include <mutex>

#include "sim/address_space.hpp"
#include "sim/device.hpp"

namespace cuvmm::sim {

CUdeviceptr AddressSpace::allocate_block(Device& device, Size size,
                                         const std::vector<int>& accessors) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device.ordinal()};
  CUdeviceptr address = take_spare(device, size, properties);
  bool whole = true;
  if (address == 0) {
    auto chunk = Chunk::create_reclaiming(&device, size, properties);
    if (chunk == nullptr) return 0;
    address = reserve(size, settings().granularity, 0, Owner::Driver);
    if (address == 0) return 0;
    whole = map(address, std::move(chunk), Owner::Driver) == CUDA_SUCCESS;
  }
  for (const int who : accessors) {
    whole =
        whole && set_access(address, size, who, Access::ReadWrite, Owner::Driver) == CUDA_SUCCESS;
  }
  if (whole) return address;
  unmap(address, size, Owner::Driver);
  free_reservation(address, size, Owner::Driver);
  return 0;
}

CUdeviceptr AddressSpace::take_spare(Device& device, Size size,
                                     const CUmemAllocationProp& properties) {
  const Writing writing{lock_};
  const int home = device.ordinal();
  const auto spare = spares_.take(home, size);
  if (!spare.has_value()) return 0;
  auto chunk = Chunk::create_of(device, spare->extent, properties);
  if (chunk == nullptr || !Views::protect(home, spare->address, size, Access::ReadWrite)) {
    if (chunk != nullptr) chunk->leave_bytes();
    spares_.put(*spare);
    return 0;
  }
  Mapping& mapping = mappings_[spare->address];
  mapping = {.address = spare->address,
             .chunk = std::move(chunk),
             .access = {},
             .owner = Owner::Driver,
             .buffer_id = ++last_buffer_id_};
  mapping.access[static_cast<std::size_t>(home)] = Access::ReadWrite;
  return spare->address;
}

bool AddressSpace::keep_spare(CUdeviceptr address) {
  const Writing writing{lock_};
  const auto found = mappings_.find(address);
  if (found == mappings_.end() || !has_backing()) return false;
  Mapping& mapping = found->second;
  Chunk& chunk = *mapping.chunk;
  const bool is_whole_block = reservations_.at(address).size == mapping.size();
  const bool is_ours_alone = mapping.chunk.use_count() == 1 && !chunk.has_own_file();
  if (!is_whole_block || !is_ours_alone || !SpareBlocks::serves(mapping.size())) return false;
  const int home = chunk.device()->ordinal();
  Access& at_home = mapping.access[static_cast<std::size_t>(home)];
  if (at_home != Access::ReadWrite ||
      !Views::protect(home, address, mapping.size(), Access::None)) {
    return false;
  }
  at_home = Access::None;
  hide(mapping);
  const auto oldest = spares_.put({address, home, chunk.leave_bytes()});
  mappings_.erase(found);
  if (oldest.has_value()) {
    Views::hide(oldest->device, oldest->address, oldest->extent.size);
    reservations_.erase(oldest->address);
    free_addresses_.give_back(oldest->address, oldest->extent.size);
  }
  return true;
}

void AddressSpace::free_block(CUdeviceptr address) {
  if (keep_spare(address)) return;
  const auto mapping = mapping_at(address);
  if (!mapping.has_value()) return;
  unmap(address, mapping->size(), Owner::Driver);
  free_reservation(address, mapping->size(), Owner::Driver);
}

}  // namespace cuvmm::sim
