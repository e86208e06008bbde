// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "base/size.hpp"
#include "driver/driver.hpp"
#include "vmm/stretch.hpp"

namespace cuvmm {

// Addresses without memory. Everything that is mapped there must be unmapped before they end.
class Reservation {
 public:
  // `granule` is the granularity of everything that will be mapped here; for locations with
  // different granules, the largest of them. `alignment` is that of the first address; 0 means the
  // granule. The driver may ignore the hint.
  static Result<Reservation> create(const Driver& driver, Size size, Size granule,
                                    Size alignment = 0, CUdeviceptr hint = 0);

  Reservation(Reservation&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)),
        address_(other.address_),
        size_(other.size_),
        granule_(other.granule_) {}
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(address_, other.address_);
    std::swap(size_, other.size_);
    std::swap(granule_, other.granule_);
    return *this;
  }
  ~Reservation() { end(); }
  // Releases the addresses. address() and size() keep their values.
  void end();

  // Valid until end().
  const Driver& driver() const { return *driver_; }
  CUdeviceptr address() const { return address_; }
  Size size() const { return size_; }
  Size granule() const { return granule_; }

  bool contains(CUdeviceptr address, Size size) const {
    return address >= address_ && Stretch{address - address_, size}.fits(size_);
  }

 private:
  Reservation(const Driver& driver, CUdeviceptr address, Size size, Size granule)
      : driver_(&driver), address_(address), size_(size), granule_(granule) {}

  const Driver* driver_;  // nullptr: nothing is owned
  CUdeviceptr address_;
  Size size_;
  Size granule_;
};

}  // namespace cuvmm
