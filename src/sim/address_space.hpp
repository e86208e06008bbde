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

// Who asked for a reservation: only the program's own answer its cuMem* calls.
enum class Owner : std::uint8_t { Program, Driver };

using AccessTable = std::array<Access, most_devices + 1>;  // a device each, the host last
inline constexpr int host_access = most_devices;

// A chunk behind addresses.
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
  ModuleVariable,  // lives and dies with its module
  GraphReserved,   // a graph's, while no launch has allocated it: only its addresses are known
};

// What the program holds.
struct Allocation {
  CUdeviceptr address = 0;
  Size size = 0;
  AllocationKind kind = AllocationKind::Blocking;
  int device = 0;  // ordinal
  std::weak_ptr<Context> context;
  std::weak_ptr<Pool> pool;
  std::uint64_t buffer_id = 0;  // never used twice
  bool sync_memops = false;
  unsigned flags = 0;  // as it was asked for
  int opens = 1;       // IpcImport: how often it was opened

  CUdeviceptr end() const { return address + size; }
};

// Everything that has an address. One per process.
class AddressSpace {
 public:
  AddressSpace();

  // Reservations. Size and alignment are multiples of the granularity; 0 where there is no room.
  CUdeviceptr reserve(Size size, Size alignment, CUdeviceptr hint, Owner owner);
  CUresult free_reservation(CUdeviceptr address, Size size, Owner owner);

  // Mappings. The range must lie in a reservation of this owner and be free.
  CUresult map(CUdeviceptr address, std::shared_ptr<Chunk> chunk, Owner owner);
  // All mappings in the range, which cuts none. Nothing mapped there is no error (measured).
  CUresult unmap(CUdeviceptr address, Size size, Owner owner);
  // The range must be exactly a row of mappings.
  CUresult set_access(CUdeviceptr address, Size size, int who, Access access, Owner owner);
  std::optional<Access> access_of(CUdeviceptr address, int who) const;
  std::optional<Mapping> mapping_at(CUdeviceptr address) const;
  // The program's reservation that holds the address: begin and size.
  std::optional<std::pair<CUdeviceptr, Size>> reservation_at(CUdeviceptr address) const;

  // Reserves, creates, maps and grants in one: what the driver's own allocations are made of.
  CUdeviceptr allocate_block(Device& device, Size size, const std::vector<int>& accessors);
  void free_block(CUdeviceptr address);

  // Allocations.
  void add(Allocation allocation);
  std::optional<Allocation> take(CUdeviceptr address);  // by its exact address
  // The same where the allocation is wanted; else it stays.
  std::optional<Allocation> take_if(CUdeviceptr address, bool (*wanted)(const Allocation&));
  std::optional<Allocation> allocation_at(CUdeviceptr address) const;  // any address inside
  bool change(CUdeviceptr address, const std::function<void(Allocation&)>& change);
  std::vector<Allocation> allocations_if(
      const std::function<bool(const Allocation&)>& wanted) const;

  // Whether device work may name these bytes: an allocation, or mappings without a gap. Host
  // addresses always may.
  bool covers(CUdeviceptr address, Size size) const;
  // The device through whose view the bytes are to be reached by work of `current`.
  int viewer_of(CUdeviceptr address, int current) const;

  // Gives the chunk a file of its own, under running work.
  bool make_shareable(const std::shared_ptr<Chunk>& chunk);

  struct Totals {
    Size mapped_bytes = 0;
    Size reserved_bytes = 0;
    std::uint64_t mappings = 0;
    std::uint64_t reservations = 0;
    std::array<std::uint64_t, 8> allocations{};  // by kind
  };
  Totals totals(int device) const;  // the program's own; device < 0: all
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

  mutable SharedLock lock_{LockOrder::SimMemory};  // guards what follows
  AddressRanges free_addresses_;
  std::map<CUdeviceptr, Reservation> reservations_;
  Mappings mappings_;
  SpareBlocks spares_;
  std::map<CUdeviceptr, Allocation> allocations_;
  std::uint64_t last_buffer_id_ = 0;
};

}  // namespace cuvmm::sim
