// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/lock.hpp"
#include "sim/address_ranges.hpp"
#include "sim/chunk.hpp"
#include "sim/settings.hpp"
#include "sim/spare_blocks.hpp"

namespace cuvmm::sim {

class Context;
class Pool;

// The owner of a reservation. The program's cuMem* calls see only its own.
enum class Owner : std::uint8_t { Program, Driver };

using AccessTable = std::array<Access, most_devices + 1>;  // one entry per device, the host last
inline constexpr int host_access = most_devices;

// A chunk mapped at an address.
struct Mapping {
  CUdeviceptr address = 0;
  std::shared_ptr<Chunk> chunk;
  AccessTable access{};
  Owner owner = Owner::Program;
  std::uint64_t buffer_id = 0;

  Size size() const { return chunk->size(); }
  CUdeviceptr end() const { return address + size(); }
};

enum class AllocationKind : std::uint8_t {
  Blocking,  // cuMemAlloc, cuMemAllocPitch
  Async,     // from a pool
  Managed,
  PinnedHost,  // cuMemAllocHost, cuMemHostAlloc
  Registered,  // cuMemHostRegister
  IpcImport,
  ModuleVariable,  // lives as long as its module
  GraphReserved,   // a graph's, not allocated by a launch: only its addresses are known
};

// An allocation that the program holds.
struct Allocation {
  CUdeviceptr address = 0;
  Size size = 0;
  AllocationKind kind = AllocationKind::Blocking;
  int device = 0;  // ordinal
  std::weak_ptr<Context> context;
  std::weak_ptr<Pool> pool;
  std::uint64_t buffer_id = 0;  // never reused
  bool sync_memops = false;
  unsigned flags = 0;  // as requested
  int opens = 1;       // IpcImport: how many times it was opened

  CUdeviceptr end() const { return address + size; }
};

// Everything in the process that has an address. One per process.
class AddressSpace {
 public:
  AddressSpace();
  // Reserves nothing beyond the usable device addresses. Call after Views::reserve().
  void withhold_unusable_addresses();

  // Reservations. Size and alignment are multiples of the granularity. Returns 0 if there is no
  // room.
  CUdeviceptr reserve(Size size, Size alignment, CUdeviceptr hint, Owner owner);
  CUresult free_reservation(CUdeviceptr address, Size size, Owner owner);

  // Mappings. The range must lie in a reservation of this owner and be unmapped.
  CUresult map(CUdeviceptr address, std::shared_ptr<Chunk> chunk, Owner owner);
  // Removes all mappings in the range, which must not cut one. An empty range is no error
  // (measured).
  CUresult unmap(CUdeviceptr address, Size size, Owner owner);
  // The range must consist exactly of whole adjacent mappings.
  CUresult set_access(CUdeviceptr address, Size size, int who, Access access, Owner owner);
  // What the program granted, so nothing for the driver's memory (measured).
  std::optional<Access> access_of(CUdeviceptr address, int who) const;
  std::optional<Mapping> mapping_at(CUdeviceptr address) const;
  // Begin and size of the program's reservation that contains the address.
  std::optional<std::pair<CUdeviceptr, Size>> reservation_at(CUdeviceptr address) const;

  // Reserves, creates, maps and grants in one step. The driver's own allocations consist of such
  // blocks.
  CUdeviceptr allocate_block(Device& device, Size size, const std::vector<int>& accessors);
  void free_block(CUdeviceptr address);

  // Allocations.
  void add(Allocation allocation);
  std::optional<Allocation> take(CUdeviceptr address);  // by its first address
  // Like take(), but leaves the allocation in place unless `wanted` accepts it.
  std::optional<Allocation> take_if(CUdeviceptr address, bool (*wanted)(const Allocation&));
  std::optional<Allocation> allocation_at(CUdeviceptr address) const;  // any address inside it
  bool change(CUdeviceptr address, const std::function<void(Allocation&)>& change);
  std::vector<Allocation> allocations_if(
      const std::function<bool(const Allocation&)>& wanted) const;

  // Whether device work may access these bytes: they lie in an allocation or in mappings without a
  // gap. True for any host address.
  bool covers(CUdeviceptr address, Size size) const;
  // The device through whose view work of device `current` accesses the bytes.
  int viewer_of(CUdeviceptr address, int current) const;

  // Moves the chunk's bytes to a file of its own, also while work that uses them is running.
  bool make_shareable(const std::shared_ptr<Chunk>& chunk);

  struct Totals {
    Size mapped_bytes = 0;
    Size reserved_bytes = 0;
    std::uint64_t mappings = 0;
    std::uint64_t reservations = 0;
    std::array<std::uint64_t, 8> allocations{};  // by kind
  };
  Totals totals(int device) const;  // the program's own; device < 0: of all devices
  std::vector<Mapping> program_mappings() const;
  std::vector<std::pair<CUdeviceptr, Size>> program_reservations() const;

 private:
  struct Reservation {
    Size size = 0;
    Owner owner = Owner::Program;
  };
  using Mappings = std::map<CUdeviceptr, Mapping>;

  const Reservation* reservation_holding(CUdeviceptr address, Size size, CUdeviceptr* begin) const;
  bool show(const Mapping& mapping, int who, Access access) const;
  bool hide(const Mapping& mapping) const;
  Mappings::iterator first_overlap(CUdeviceptr address, Size size);
  Mappings::const_iterator mapping_holding(CUdeviceptr address) const;
  bool is_row_of_mappings(CUdeviceptr address, Size size, Owner owner, bool exactly);
  CUdeviceptr take_spare(Device& device, Size size, const CUmemAllocationProp& properties);
  bool keep_spare(CUdeviceptr address);

  mutable SharedLock lock_{LockOrder::SimMemory};  // guards the members below
  AddressRanges free_addresses_;
  std::map<CUdeviceptr, Reservation> reservations_;
  Mappings mappings_;
  SpareBlocks spares_;
  std::map<CUdeviceptr, Allocation> allocations_;
  std::uint64_t last_buffer_id_ = 0;
};

}  // namespace cuvmm::sim
