// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>

#include "alloc/allocation_map.hpp"
#include "driver/driver.hpp"
#include "vmm/reserved_addresses.hpp"

namespace cuvmm {

// The allocations that the program holds, found by address, and what is noted about each.
// Thread-safe.
class HeldAllocations {  // NOLINT(clang-analyzer-optin.performance.Padding)
 public:
  // `driver` must outlive this object.
  explicit HeldAllocations(const Driver& driver) : driver_(driver) {}

  // The program holds the placed allocation from now on, under a buffer ID of its own.
  void add(Allocation& allocation, Allocation::Holding holding);
  // Of several concurrent attempts to end that, exactly one succeeds.
  bool try_release(const AllocationMap::Found& found);
  // Undoes try_release() if the allocation could not be freed. Called by the thread that released
  // it.
  void restore(const AllocationMap::Found& found);

  // These find only memory that is still served. The calling thread must be inside a call barrier
  // for as long as it uses the owner, which may otherwise be destroyed (Retired).
  //
  // The allocation that begins there.
  std::optional<AllocationMap::Found> find_start(CUdeviceptr address) const;
  // The allocation that contains the byte.
  std::optional<AllocationMap::Found> find_holder(CUdeviceptr address) const;
  std::optional<AllocationFacts> find(CUdeviceptr address) const {
    const auto found = find_holder(address);
    return found ? std::optional{found->facts} : std::nullopt;
  }

  // The allocation does not move from now on. Returns false if the program does not hold it.
  bool pin(CUdeviceptr address, std::uint8_t why);
  // SYNC_MEMOPS: copies and sets of the allocation must be complete when their calls return.
  void set_sync_memops(CUdeviceptr address, bool on);
  bool any_has_sync_memops() const { return sync_memops_.load(std::memory_order_relaxed) != 0; }

  // Lists memory of another process that is mapped here: lookups find it, and frees refuse it.
  // `record` must outlive this object.
  void list_opened(Allocation& record, CUdeviceptr address, Size size, CUcontext context);
  void unlist_opened(Allocation& record);

 private:
  const Driver& driver_;
  AllocationMap map_{[](CUdeviceptr address) { return reserved_addresses::intersect(address, 1); }};
  std::atomic<int> sync_memops_{0};  // allocations with SYNC_MEMOPS

  // The IDs start far above the driver's. Every allocation writes this, so it lies apart from the
  // members that every copy reads.
  alignas(64) std::atomic<std::uint64_t> last_buffer_id_{std::uint64_t{1} << 40};
};

}  // namespace cuvmm
