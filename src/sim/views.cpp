// SPDX-License-Identifier: Apache-2.0
#include "sim/views.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>

#include "sim/address_layout.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

Size view_size = 0;  // of each device; set once by reserve()

bool reserve_stretch(std::uint64_t address, Size size) {
  void* wanted = reinterpret_cast<void*>(address);
  void* got = mmap(wanted, size, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == wanted) {
    madvise(got, size, MADV_DONTDUMP);
    return true;
  }
  if (got != MAP_FAILED) munmap(got, size);
  return false;
}

int protection_of(Access access) {
  if (access == Access::ReadWrite) return PROT_READ | PROT_WRITE;
  return access == Access::Read ? PROT_READ : PROT_NONE;
}

bool show_at(std::byte* where, const Extent& extent, Access access) {
  if (!has_backing()) return true;
  void* got = mmap(where, extent.size, protection_of(access), MAP_SHARED | MAP_FIXED, extent.file,
                   static_cast<off_t>(extent.offset));
  if (got != MAP_FAILED) return true;
  if (errno == ENOMEM) {
    CUVMM_LOG_ONCE(Warning,
                   "the process has reached vm.max_map_count mappings: "
                   "cuMemSetAccess and allocations answer out of memory");
  }
  return false;
}

bool hide_at(std::byte* where, Size size) {
  if (!has_backing()) return true;
  return mmap(where, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
              0) != MAP_FAILED;
}

}  // namespace

Size usable_device_addresses = device_addresses_size;

bool Views::reserve(int devices) {
  view_size = round_down(views_size / static_cast<Size>(devices), GiB);
  if (!reserve_stretch(device_addresses_begin, usable_device_addresses)) {
    usable_device_addresses = device_addresses_below_heap;
    if (!reserve_stretch(device_addresses_begin, usable_device_addresses)) return false;
  }
  return reserve_stretch(views_begin, view_size * static_cast<Size>(devices));
}

bool Views::can_show(std::uint64_t address, Size size) {
  if (!has_backing()) return true;
  const std::uint64_t offset = address - device_addresses_begin;
  return offset <= view_size && size <= view_size - offset;
}

std::byte* Views::at(int device, std::uint64_t address) {
  if (!is_device_address(address)) return reinterpret_cast<std::byte*>(address);
  return reinterpret_cast<std::byte*>(address - device_addresses_begin + views_begin +
                                      view_size * static_cast<Size>(device));
}

bool Views::show(int device, std::uint64_t address, const Extent& extent, Access access) {
  if (access == Access::None) return hide(device, address, extent.size);
  return show_at(at(device, address), extent, access);
}

bool Views::hide(int device, std::uint64_t address, Size size) {
  return hide_at(at(device, address), size);
}

bool Views::protect(int device, std::uint64_t address, Size size, Access access) {
  return mprotect(at(device, address), size, protection_of(access)) == 0;
}

bool Views::show_to_host(std::uint64_t address, const Extent& extent, Access access) {
  auto* where = reinterpret_cast<std::byte*>(address);
  return access == Access::None ? hide_at(where, extent.size) : show_at(where, extent, access);
}

}  // namespace cuvmm::sim
