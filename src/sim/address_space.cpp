// SPDX-License-Identifier: Apache-2.0
#include "sim/address_space.hpp"

#include <sys/mman.h>

#include <cstring>
#include <mutex>

#include "sim/address_layout.hpp"
#include "sim/device.hpp"
#include "sim/guard.hpp"
#include "sim/unwatched.hpp"
#include "sim/views.hpp"

namespace cuvmm::sim {

AddressSpace::AddressSpace() : free_addresses_(device_addresses_begin, device_addresses_size) {}

void AddressSpace::withhold_unusable_addresses() {
  const Writing writing{lock_};
  const Size withheld = device_addresses_size - usable_device_addresses;
  if (withheld == 0) return;
  free_addresses_.take_at(device_addresses_begin + usable_device_addresses, withheld);
}

// Reservations ------------------------------------------------------------------------------------

CUdeviceptr AddressSpace::reserve(Size size, Size alignment, CUdeviceptr hint, Owner owner) {
  const Writing writing{lock_};
  CUdeviceptr address = 0;
  if (hint != 0 && is_multiple(hint, alignment) && free_addresses_.take_at(hint, size)) {
    address = hint;
  } else {
    const CUdeviceptr from =
        size > showable_addresses_size ? device_addresses_begin + showable_addresses_size : 0;
    address = free_addresses_.take(size, alignment, from).value_or(0);
  }
  if (address != 0) reservations_[address] = {.size = size, .owner = owner};
  return address;
}

CUresult AddressSpace::free_reservation(CUdeviceptr address, Size size, Owner owner) {
  const Writing writing{lock_};
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second.size != size || found->second.owner != owner) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (first_overlap(address, size) != mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  reservations_.erase(found);
  free_addresses_.give_back(address, size);
  return CUDA_SUCCESS;
}

const AddressSpace::Reservation* AddressSpace::reservation_holding(CUdeviceptr address, Size size,
                                                                   CUdeviceptr* begin) const {
  auto found = reservations_.upper_bound(address);
  if (found == reservations_.begin()) return nullptr;
  --found;
  const Size offset = address - found->first;
  if (offset >= found->second.size || size > found->second.size - offset) return nullptr;
  if (begin != nullptr) *begin = found->first;
  return &found->second;
}

std::optional<std::pair<CUdeviceptr, Size>> AddressSpace::reservation_at(
    CUdeviceptr address) const {
  const Reading reading{lock_};
  CUdeviceptr begin = 0;
  const Reservation* found = reservation_holding(address, 1, &begin);
  if (found == nullptr || found->owner != Owner::Program) return std::nullopt;
  return std::pair{begin, found->size};
}

// Mappings ----------------------------------------------------------------------------------------

AddressSpace::Mappings::iterator AddressSpace::first_overlap(CUdeviceptr address, Size size) {
  auto next = mappings_.upper_bound(address);
  if (next != mappings_.begin()) {
    const auto before = std::prev(next);
    if (before->second.end() > address) return before;
  }
  if (next != mappings_.end() && next->first < address + size) return next;
  return mappings_.end();
}

AddressSpace::Mappings::const_iterator AddressSpace::mapping_holding(CUdeviceptr address) const {
  auto found = mappings_.upper_bound(address);
  if (found == mappings_.begin()) return mappings_.end();
  --found;
  return address < found->second.end() ? found : mappings_.end();
}

bool AddressSpace::show(const Mapping& mapping, int who, Access access) const {
  if (who == host_access)
    return Views::show_to_host(mapping.address, mapping.chunk->extent(), access);
  return Views::show(who, mapping.address, mapping.chunk->extent(), access);
}

bool AddressSpace::hide(const Mapping& mapping) const {
  bool hidden = true;
  for (int who = 0; who <= host_access; ++who) {
    if (mapping.access[static_cast<std::size_t>(who)] != Access::None) {
      hidden = show(mapping, who, Access::None) && hidden;
    }
  }
  return hidden;
}

CUresult AddressSpace::map(CUdeviceptr address, std::shared_ptr<Chunk> chunk, Owner owner) {
  const Writing writing{lock_};
  const Size size = chunk->size();
  const Reservation* reservation = reservation_holding(address, size, nullptr);
  if (reservation == nullptr || reservation->owner != owner) return CUDA_ERROR_INVALID_VALUE;
  if (first_overlap(address, size) != mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (!Views::can_show(address, size)) {
    CUVMM_LOG_ONCE(Warning,
                   "this address is beyond what the simulated driver can map: cuMemMap "
                   "answers out of memory");
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  mappings_[address] = {.address = address,
                        .chunk = std::move(chunk),
                        .access = {},
                        .owner = owner,
                        .buffer_id = ++last_buffer_id_};
  return CUDA_SUCCESS;
}

bool AddressSpace::is_row_of_mappings(CUdeviceptr address, Size size, Owner owner, bool exactly) {
  CUdeviceptr next = address;
  for (auto found = mappings_.find(address); next < address + size; ++found) {
    if (found == mappings_.end() || found->first != next || found->second.owner != owner) {
      return false;
    }
    next = found->second.end();
  }
  return !exactly || next == address + size;
}

CUresult AddressSpace::unmap(CUdeviceptr address, Size size, Owner owner) {
  const Writing writing{lock_};
  const Reservation* reservation = reservation_holding(address, size, nullptr);
  if (size == 0 || reservation == nullptr || reservation->owner != owner) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto first = first_overlap(address, size);
  if (first == mappings_.end()) return CUDA_SUCCESS;
  const auto last = mappings_.lower_bound(address + size);
  // Refuses a range that cuts a mapping at either end.
  if (first->first < address || std::prev(last)->second.end() > address + size) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (auto found = first; found != last; ++found) hide(found->second);
  mappings_.erase(first, last);
  return CUDA_SUCCESS;
}

CUresult AddressSpace::set_access(CUdeviceptr address, Size size, int who, Access access,
                                  Owner owner) {
  const Writing writing{lock_};
  if (size == 0 || !is_row_of_mappings(address, size, owner, true)) return CUDA_ERROR_INVALID_VALUE;
  const auto index = static_cast<std::size_t>(who);
  const auto last = mappings_.lower_bound(address + size);
  for (auto found = mappings_.find(address); found != last; ++found) {
    if (found->second.access[index] == access) continue;
    const Device* const home = found->second.chunk->device();
    const bool is_peer = home != nullptr && who != host_access && who != home->ordinal();
    if (is_peer && access != Access::None && settings().peers == Switch::Off) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!show(found->second, who, access)) {
      // Mappings that were granted before this one stay granted, as on a card after a failed call:
      // the caller unmaps them or sets access again. // assumed
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    found->second.access[index] = access;
  }
  return CUDA_SUCCESS;
}

std::optional<Access> AddressSpace::access_of(CUdeviceptr address, int who) const {
  const Reading reading{lock_};
  const auto found = mapping_holding(address);
  if (found == mappings_.end()) return std::nullopt;
  if (found->second.owner == Owner::Driver) return Access::None;
  return found->second.access[static_cast<std::size_t>(who)];
}

std::optional<Mapping> AddressSpace::mapping_at(CUdeviceptr address) const {
  const Reading reading{lock_};
  const auto found = mapping_holding(address);
  if (found == mappings_.end()) return std::nullopt;
  return found->second;
}

bool AddressSpace::make_shareable(const std::shared_ptr<Chunk>& chunk) {
  const Writing writing{lock_};
  if (chunk->has_own_file() || !has_backing()) return true;
  const Device* const device = chunk->device();
  const Extent own = take_own_file(chunk->size(), device != nullptr ? device->number() : -1);
  if (own.file < 0) return false;
  const auto window = [](const Extent& extent, int protection) {
    return mmap(nullptr, extent.size, protection, MAP_SHARED, extent.file,
                static_cast<off_t>(extent.offset));
  };
  void* from = window(chunk->extent(), PROT_READ);
  void* to = window(own, PROT_READ | PROT_WRITE);
  const bool both = from != MAP_FAILED && to != MAP_FAILED;
  if (both) {
    const Guard::Pause pause;
    const Unwatched order_by_faults;  // of work in flight
    const auto each_view = [&](const auto& what) {
      for (auto& [address, mapping] : mappings_) {
        if (mapping.chunk != chunk) continue;
        for (int who = 0; who <= host_access; ++who) {
          const Access access = mapping.access[static_cast<std::size_t>(who)];
          if (access != Access::None) what(mapping, who, access);
        }
      }
    };
    each_view([&](const Mapping& mapping, int who, Access) { show(mapping, who, Access::Read); });
    std::memcpy(to, from, own.size);
    chunk->adopt_own_file(own);
    each_view([&](const Mapping& mapping, int who, Access access) { show(mapping, who, access); });
  } else {
    close_own_file(own);
  }
  if (from != MAP_FAILED) munmap(from, own.size);
  if (to != MAP_FAILED) munmap(to, own.size);
  return both;
}

// Allocations -------------------------------------------------------------------------------------

void AddressSpace::add(Allocation allocation) {
  const Writing writing{lock_};
  if (allocation.buffer_id == 0) allocation.buffer_id = ++last_buffer_id_;
  const CUdeviceptr address = allocation.address;
  allocations_.insert_or_assign(address, std::move(allocation));
}

std::optional<Allocation> AddressSpace::take(CUdeviceptr address) {
  return take_if(address, [](const Allocation&) { return true; });
}

std::optional<Allocation> AddressSpace::take_if(CUdeviceptr address,
                                                bool (*wanted)(const Allocation&)) {
  const Writing writing{lock_};
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || !wanted(found->second)) return std::nullopt;
  Allocation taken = std::move(found->second);
  allocations_.erase(found);
  return taken;
}

std::optional<Allocation> AddressSpace::allocation_at(CUdeviceptr address) const {
  const Reading reading{lock_};
  auto found = allocations_.upper_bound(address);
  if (found == allocations_.begin()) return std::nullopt;
  --found;
  if (address >= found->second.end()) return std::nullopt;
  if (found->second.kind == AllocationKind::GraphReserved) return std::nullopt;
  return found->second;
}

bool AddressSpace::change(CUdeviceptr address, const std::function<void(Allocation&)>& change) {
  const Writing writing{lock_};
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return false;
  change(found->second);
  return true;
}

std::vector<Allocation> AddressSpace::allocations_if(
    const std::function<bool(const Allocation&)>& wanted) const {
  const Reading reading{lock_};
  std::vector<Allocation> found;
  for (const auto& [address, allocation] : allocations_) {
    if (wanted(allocation)) found.push_back(allocation);
  }
  return found;
}

bool AddressSpace::covers(CUdeviceptr address, Size size) const {
  if (!is_device_address(address)) return true;
  const Reading reading{lock_};
  auto allocation = allocations_.upper_bound(address);
  if (allocation != allocations_.begin()) {
    --allocation;
    if (address < allocation->second.end()) return size <= allocation->second.end() - address;
  }
  CUdeviceptr next = address;
  for (auto found = mapping_holding(address); next < address + size; ++found) {
    if (found == mappings_.end() || found->second.owner != Owner::Program) return false;
    if (found->first > next) return false;
    next = found->second.end();
  }
  return true;
}

int AddressSpace::viewer_of(CUdeviceptr address, int current) const {
  if (!is_device_address(address)) return current;
  const Reading reading{lock_};
  const auto found = mapping_holding(address);
  if (found == mappings_.end()) return current;
  const Mapping& mapping = found->second;
  if (mapping.access[static_cast<std::size_t>(current)] != Access::None) return current;
  const Device* home = mapping.chunk->device();
  if (mapping.owner == Owner::Driver && home != nullptr) return home->ordinal();
  return current;
}

AddressSpace::Totals AddressSpace::totals(int device) const {
  const Reading reading{lock_};
  Totals totals;
  for (const auto& [address, mapping] : mappings_) {
    const Device* home = mapping.chunk->device();
    if (mapping.owner != Owner::Program) continue;
    if (device >= 0 && (home == nullptr || home->ordinal() != device)) continue;
    totals.mapped_bytes += mapping.size();
    ++totals.mappings;
  }
  for (const auto& [address, reservation] : reservations_) {
    if (reservation.owner != Owner::Program) continue;
    totals.reserved_bytes += reservation.size;
    ++totals.reservations;
  }
  for (const auto& [address, allocation] : allocations_) {
    if (device < 0 || allocation.device == device) {
      ++totals.allocations[static_cast<std::size_t>(allocation.kind)];
    }
  }
  return totals;
}

std::vector<Mapping> AddressSpace::program_mappings() const {
  const Reading reading{lock_};
  std::vector<Mapping> found;
  for (const auto& [address, mapping] : mappings_) {
    if (mapping.owner == Owner::Program) found.push_back(mapping);
  }
  return found;
}

std::vector<std::pair<CUdeviceptr, Size>> AddressSpace::program_reservations() const {
  const Reading reading{lock_};
  std::vector<std::pair<CUdeviceptr, Size>> found;
  for (const auto& [address, reservation] : reservations_) {
    if (reservation.owner == Owner::Program) found.emplace_back(address, reservation.size);
  }
  return found;
}

}  // namespace cuvmm::sim
