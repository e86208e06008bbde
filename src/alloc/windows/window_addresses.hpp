// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/invariant.hpp"
#include "vmm/reservation.hpp"

namespace cuvmm {

// The addresses from which windows are cut, in granules. They are reserved in steps as needed. A
// window lies within one reservation. Not synchronised.
class WindowAddresses {
 public:
  struct Bounds {
    Size granule;
    Size step;  // reserve at least this much at once, if the driver grants it
    Size most;  // in total
  };
  WindowAddresses(const Driver& driver, const Bounds& bounds) : driver_(driver), bounds_(bounds) {}
  WindowAddresses(const WindowAddresses&) = delete;
  WindowAddresses& operator=(const WindowAddresses&) = delete;

  // OutOfAddresses if there are none.
  Result<CUdeviceptr> take(Size bytes);
  // Nothing may be mapped there any longer.
  void give(CUdeviceptr address, Size bytes);

  Size reserved_bytes() const { return reserved_bytes_; }
  Size free_bytes() const { return free_bytes_; }
  // Whether all these bytes lie within one reservation.
  bool in_one_reservation(CUdeviceptr address, Size bytes) const;

  // Ends all reservations. No addresses may be taken.
  void clear();

  InvariantViolation violation() const;
  template <class Visit>
  void for_each_free(Visit visit) const {
    for (const auto& [address, bytes] : free_) visit(address, bytes);
  }

 private:
  using Run = std::map<CUdeviceptr, Size>::iterator;

  Result<void> reserve(Size bytes);
  void add_free(CUdeviceptr address, Size bytes);
  void remove_free(Run run);
  bool is_seam(CUdeviceptr address) const { return seams_.count(address) != 0; }

  const Driver& driver_;
  const Bounds bounds_;
  std::vector<Reservation> reservations_;
  std::set<CUdeviceptr> seams_;  // where reservations begin: free runs do not cross them
  std::map<CUdeviceptr, Size> free_;
  std::set<std::pair<Size, CUdeviceptr>> by_size_;
  Size reserved_bytes_ = 0;
  Size free_bytes_ = 0;
};

}  // namespace cuvmm
