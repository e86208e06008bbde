// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/size.hpp"
#include "driver/driver.hpp"
#include "vmm/location.hpp"

namespace cuvmm {

// Copies on one stream, with one wait for all of them. Consecutive adjacent pieces between the same
// two locations become one copy.
class CopyBytes {
 public:
  CopyBytes(const Driver& driver, CUstream stream) : driver_(driver), stream_(stream) {}
  CopyBytes(const CopyBytes&) = delete;
  CopyBytes& operator=(const CopyBytes&) = delete;

  Result<void> add(CUdeviceptr to, CUdeviceptr from, Size size, Location from_location,
                   Location to_location);
  // Waits until everything added is done.
  Result<void> finish();

  // After a failure: returns whether none of the copies is still running, waiting for the stream if
  // necessary. Until it returns true, the memory must stay where it is.
  bool is_over();

 private:
  struct Piece {
    CUdeviceptr to;
    CUdeviceptr from;
    Size size;
    Location from_location;
    Location to_location;
    bool is_followed_by(const Piece& next) const {
      return to + size == next.to && from + size == next.from &&
             from_location == next.from_location && to_location == next.to_location;
    }
  };
  Result<void> submit();
  Result<void> wait_by_event();

  const Driver& driver_;
  CUstream stream_;
  Piece piece_{0, 0, 0, Location::device(0), Location::device(0)};
  bool runs_ = false;  // something was submitted but not waited for
};

}  // namespace cuvmm
