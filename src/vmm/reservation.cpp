// SPDX-License-Identifier: Apache-2.0
#include "vmm/reservation.hpp"

#include "vmm/deferred_release.hpp"
#include "vmm/reserved_addresses.hpp"

namespace cuvmm {

Result<Reservation> Reservation::create(const Driver& driver, Size size, Size granule,
                                        Size alignment, CUdeviceptr hint) {
  constexpr const char* doing = "reserve addresses";
  retry_releases();
  if (size == 0) return Error::invalid(doing, "of no bytes");
  if (!is_power_of_two(granule))
    return Error::invalid(doing, "granule is not a power of two", granule);
  if (!is_multiple(size, granule)) return Error::invalid(doing, "size is not in granules", size);
  if (alignment == 0) alignment = granule;
  if (!is_power_of_two(alignment) || alignment < granule) {
    return Error::invalid(doing, "alignment is not a power of two from a granule up", alignment);
  }
  CUdeviceptr address = 0;
  const auto answer = driver.cuMemAddressReserve(&address, size, alignment, hint, 0);
  if (answer != CUDA_SUCCESS) {
    Error error = driver.error_of(answer, doing, size);
    // No memory is asked for here.
    if (error.kind == ErrorKind::OutOfMemory) error.kind = ErrorKind::OutOfAddresses;
    return error;
  }
  reserved_addresses::add(address, size);
  return Reservation{driver, address, size, granule};
}

void Reservation::end() {
  const Driver* const driver = std::exchange(driver_, nullptr);
  if (driver == nullptr) return;
  reserved_addresses::remove(address_);
  release_or_defer(Deferred::Addresses, [driver, address = address_, size = size_] {
    return driver->cuMemAddressFree(address, size);
  });
}

}  // namespace cuvmm
