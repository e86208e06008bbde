// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "alloc/served_contexts.hpp"
#include "alloc/served_pools.hpp"

namespace cuvmm {

// A snapshot of one device.
struct MemoryCounters {
  Size requested_live = 0;  // requested by the program and still held
  Size mapped_free = 0;     // mapped by arenas and windows, but unallocated
  Size native = 0;          // taken from the driver natively; 0 without a limit
  ChunkCounters chunks;
  Moved moved;
  Size physical_held() const {
    return chunks.physical_in_use + chunks.physical_free + chunks.physical_unreleased;
  }
};

// All that contexts and pools hold of a device's memory, including pools that have ended.
// Thread-safe.
class DeviceHoldings {
 public:
  // All must outlive this object.
  DeviceHoldings(const ServedDevices& devices, const ServedContexts& contexts,
                 const ServedPools& pools)
      : devices_(devices), contexts_(contexts), pools_(pools) {}

  MemoryCounters counters(int ordinal) const;
  // The state of all contexts and pools of the device.
  std::vector<RegionUse> regions(int ordinal) const;
  // Bytes that are mapped for the device and unallocated: on the device, and elsewhere.
  Size mapped_free(int ordinal) const;
  Size spilled_free(int ordinal) const;
  // Unused memory of this device: what the device itself keeps, and about what other devices keep
  // of what they spilled to it.
  Size cached(const DeviceMemory& device) const;
  // Releases up to `wanted` bytes of it for other uses of the device's memory. Returns how much.
  Size release(int ordinal, Size wanted) const;
  // The same without pools, whose programs decide how much they keep, and only what takes few
  // driver calls.
  Size blocking_free(int ordinal) const;
  Size release_cheap(int ordinal, Size wanted) const;

  // The chunks behind the memory that the program holds on a device. A chunk that blocks share is
  // listed for each of them.
  std::vector<HeldChunk> chunks(int ordinal) const;
  // Begins the eviction of all memory of the device that we serve (alloc/eviction_set.hpp). No call
  // and no work of the program may be in flight.
  void begin_eviction(int ordinal, EvictionSet& evicted) const;

  // Records in the trace what each arena and the windows hold. For a process that is exiting: waits
  // for no lock.
  void trace_all() const;
  InvariantViolation violation() const;

 private:
  template <class Visit>
  void for_each(int ordinal, Visit visit) const {
    contexts_.for_each(ordinal, visit);
    pools_.for_each(ordinal, visit);
  }

  const ServedDevices& devices_;
  const ServedContexts& contexts_;
  const ServedPools& pools_;
};

}  // namespace cuvmm
