// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <span>

#include "spill/staging_ring.hpp"

namespace cuvmm {

// Copies between a device and host memory, in parts on alternating streams, so that one part begins
// as another ends. Memory that is not pinned is copied through a ring. Its context must be current.
class HostCopies {
 public:
  // `ring`: pinned memory to copy through; may be empty.
  static Result<std::unique_ptr<HostCopies>> open(const Driver& driver, CopyDirection direction,
                                                  std::span<std::byte> ring);
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // Whether there is a ring.
  bool can_stage() const { return ring_ != nullptr; }

  // Merges pieces that are contiguous on both sides into one copy.
  Result<void> add(CUdeviceptr device, std::byte* pinned, Size size);
  // The same for memory that is not pinned. There must be a ring.
  Result<void> add_staged(CUdeviceptr device, std::byte* host, Size size);
  // Ends the current part, which starts its copies. Waits if too many parts are in flight.
  Result<void> end_part();
  // Waits for the first `parts` parts.
  Result<void> wait_for(std::size_t parts);
  std::size_t parts() const { return begun_; }
  Result<void> wait_for_all() { return wait_for(begun_); }
  // After a failure: whether no copy is running any more.
  bool are_over();

 private:
  static constexpr std::size_t streams_at_once = 2;
  static constexpr std::size_t parts_at_once = 4;

  struct Piece {
    CUdeviceptr device = 0;
    std::byte* host = nullptr;
    Size size = 0;
  };

  HostCopies(const Driver& driver, CopyDirection direction)
      : driver_(driver), direction_(direction) {}
  Result<void> submit();
  CUstream stream() const { return streams_[begun_ % streams_at_once]; }

  const Driver& driver_;
  const CopyDirection direction_;
  std::unique_ptr<StagingRing> ring_;
  std::array<CUstream, streams_at_once> streams_{};
  std::array<CUevent, parts_at_once> events_{};
  std::array<std::size_t, parts_at_once> staged_{};  // the ring's copies up to the end of the part
  Piece piece_;
  std::size_t begun_ = 0;  // parts
  std::size_t done_ = 0;   // of them, known to be complete
  bool runs_ = false;      // something was submitted and not waited for
  bool part_is_begun_ = false;
};

}  // namespace cuvmm
