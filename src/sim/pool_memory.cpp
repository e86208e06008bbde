// SPDX-License-Identifier: Apache-2.0
#include "sim/pool_memory.hpp"

#include <algorithm>
#include <iterator>

#include "sim/cost_model.hpp"
#include "sim/device.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

CUmemAllocationProp properties_of(Device* device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type =
      device != nullptr ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA;
  properties.location.id = device != nullptr ? device->ordinal() : 0;
  return properties;
}

void join(std::map<CUdeviceptr, Size>& ranges, CUdeviceptr address, Size size) {
  auto next = ranges.lower_bound(address);
  if (next != ranges.end() && next->first == address + size) {
    size += next->second;
    next = ranges.erase(next);
  }
  if (next != ranges.begin() && std::prev(next)->first + std::prev(next)->second == address) {
    std::prev(next)->second += size;
  } else {
    ranges.emplace_hint(next, address, size);
  }
}

}  // namespace

PoolMemory::PoolMemory(Device* device)
    : device_(device), piece_size_(round_up(32 * MiB, settings().granularity)) {
  const int home = device != nullptr ? device->ordinal() : host_access;
  access_[static_cast<std::size_t>(home)] = Access::ReadWrite;
}

PoolMemory::~PoolMemory() {
  for (const auto& [address, size] : reservations_) {
    for (CUdeviceptr piece = address; piece != address + size; piece += piece_size_) {
      space().unmap(piece, piece_size_, Owner::Driver);  // refused if nothing is mapped
    }
    space().free_reservation(address, size, Owner::Driver);
  }
}

bool PoolMemory::add_addresses(Size at_least) {
  const Size memory = device_ != nullptr ? device_->memory() : 8 * GiB;
  const Size size = std::max(round_up(at_least, piece_size_), round_up(2 * memory, piece_size_));
  const CUdeviceptr address = space().reserve(size, piece_size_, 0, Owner::Driver);
  if (address == 0) return false;
  reservations_.emplace(address, size);
  join(unmapped_, address, size);
  return true;
}

bool PoolMemory::map_piece(CUdeviceptr address) {
  auto chunk = Chunk::create(device_, piece_size_, properties_of(device_));
  if (chunk == nullptr) return false;
  if (space().map(address, std::move(chunk), Owner::Driver) != CUDA_SUCCESS) return false;
  for (int who = 0; who <= host_access; ++who) {
    if (access_of(who) == Access::None) continue;
    if (space().set_access(address, piece_size_, who, access_of(who), Owner::Driver) !=
        CUDA_SUCCESS) {
      space().unmap(address, piece_size_, Owner::Driver);
      return false;
    }
  }
  cost_of(Activity::GrowPool, piece_size_);
  return true;
}

bool PoolMemory::map(CUdeviceptr address, Size size) {
  for (CUdeviceptr piece = address; piece != address + size; piece += piece_size_) {
    if (map_piece(piece)) continue;
    if (piece != address) space().unmap(address, piece - address, Owner::Driver);
    return false;
  }
  const auto stretch = std::prev(unmapped_.upper_bound(address));
  const CUdeviceptr begin = stretch->first;
  const CUdeviceptr end = begin + stretch->second;
  unmapped_.erase(stretch);
  if (begin < address) unmapped_.emplace(begin, address - begin);
  if (address + size < end) unmapped_.emplace(address + size, end - (address + size));
  mapped_bytes_ += size;
  return true;
}

void PoolMemory::unmap(CUdeviceptr address, Size size) {
  for (Size done = 0; done < size; done += piece_size_) cost_of(Activity::ShrinkPool, piece_size_);
  space().unmap(address, size, Owner::Driver);
  join(unmapped_, address, size);
  mapped_bytes_ -= size;
}

CUresult PoolMemory::set_access(int who, Access access) {
  access_[static_cast<std::size_t>(who)] = access;
  for (const auto& [address, size] : reservations_) {
    for (CUdeviceptr piece = address; piece != address + size; piece += piece_size_) {
      const auto mapping = space().mapping_at(piece);
      if (!mapping.has_value()) continue;
      const CUresult answer = space().set_access(piece, piece_size_, who, access, Owner::Driver);
      if (answer != CUDA_SUCCESS) return answer;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
