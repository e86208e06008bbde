// SPDX-License-Identifier: Apache-2.0
#include "sim/graph_memory.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "base/made_once.hpp"
#include "sim/device.hpp"
#include "sim/pool.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

// Memory of launched graphs that still exists.
struct LaunchedMemory {
  Size launched = 0;
  Size used_high = 0;
  Size reserved_high = 0;
};

struct All {
  static All& get() {
    static constinit MadeOnce<All> all;
    return all.get();
  }
  Lock lock{LockOrder::SimPool};  // guards the members below
  std::map<CUdeviceptr, std::weak_ptr<GraphMemory>> known;
  std::map<CUdeviceptr, std::shared_ptr<GraphMemory>> allocated;
  std::array<LaunchedMemory, most_devices> use{};

  LaunchedMemory& use_of(const GraphMemory& memory) {
    return use[static_cast<std::size_t>(memory.device)];
  }
};

// Queries see graph memory only while a launch has allocated it (measured).
void show_as(CUdeviceptr address, AllocationKind kind) {
  Process::get().space().change(address,
                                [kind](Allocation& allocation) { allocation.kind = kind; });
}

}  // namespace

std::shared_ptr<GraphMemory> GraphMemory::create(Device& device, Size size,
                                                 const std::vector<int>& accessors) {
  const Size whole = round_up(size, Size{settings().granularity});
  if (whole == 0) return nullptr;
  AddressSpace& space = Process::get().space();
  CUdeviceptr address = space.allocate_block(device, whole, accessors);
  if (address == 0) {
    release_unused_pool_memory(device);
    address = space.allocate_block(device, whole, accessors);
  }
  if (address == 0) return nullptr;
  std::shared_ptr<GraphMemory> memory{new GraphMemory{address, size, device.ordinal()}};
  space.add({.address = address,
             .size = size,
             .kind = AllocationKind::GraphReserved,
             .device = device.ordinal()});
  All& all = All::get();
  const Holding holding{all.lock};
  all.known[address] = memory;
  return memory;
}

GraphMemory::~GraphMemory() {
  AddressSpace& space = Process::get().space();
  space.take(address);
  {
    All& all = All::get();
    const Holding holding{all.lock};
    all.known.erase(address);
    if (was_launched) all.use_of(*this).launched -= size;
  }
  space.free_block(address);
}

std::shared_ptr<GraphMemory> find_graph_memory(CUdeviceptr address) {
  All& all = All::get();
  const Holding holding{all.lock};
  const auto found = all.known.find(address);
  return found == all.known.end() ? nullptr : found->second.lock();
}

bool allocate_graph_memory(const std::shared_ptr<GraphMemory>& memory) {
  show_as(memory->address, AllocationKind::Async);
  All& all = All::get();
  const Holding holding{all.lock};
  if (!all.allocated.emplace(memory->address, memory).second) return false;
  if (std::exchange(memory->was_launched, true)) return true;
  LaunchedMemory& use = all.use_of(*memory);
  use.launched += memory->size;
  use.used_high = std::max(use.used_high, use.launched);
  use.reserved_high = std::max(use.reserved_high, use.launched);
  return true;
}

bool is_allocated(const GraphMemory& memory) {
  All& all = All::get();
  const Holding holding{all.lock};
  return all.allocated.count(memory.address) != 0;
}

std::shared_ptr<GraphMemory> take_graph_memory(CUdeviceptr address) {
  std::shared_ptr<GraphMemory> memory;
  {
    All& all = All::get();
    const Holding holding{all.lock};
    const auto found = all.allocated.find(address);
    if (found == all.allocated.end()) return nullptr;
    memory = std::move(found->second);
    all.allocated.erase(found);
  }
  show_as(address, AllocationKind::GraphReserved);
  return memory;
}

GraphMemoryUse graph_memory_use(int device) {
  All& all = All::get();
  const Holding holding{all.lock};
  const LaunchedMemory& use = all.use[static_cast<std::size_t>(device)];
  const auto pieces = [](Size size) { return round_up(size, 32 * MiB); };  // measured
  return {.used = pieces(use.launched),
          .used_high = pieces(use.used_high),
          .reserved = pieces(use.launched),
          .reserved_high = pieces(use.reserved_high)};
}

void trim_graph_memory(int device) {
  std::vector<std::shared_ptr<GraphMemory>> alive;  // may be last references: drop after unlock
  All& all = All::get();
  const Holding holding{all.lock};
  for (const auto& [address, known] : all.known) {
    auto memory = known.lock();
    if (memory == nullptr) continue;
    const bool is_kept = memory->device == device && memory->was_launched;
    if (is_kept && all.allocated.count(address) == 0) {
      memory->was_launched = false;
      all.use_of(*memory).launched -= memory->size;
    }
    alive.push_back(std::move(memory));
  }
}

void reset_graph_memory_high(int device, CUgraphMem_attribute which) {
  All& all = All::get();
  const Holding holding{all.lock};
  LaunchedMemory& use = all.use[static_cast<std::size_t>(device)];
  if (which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) use.used_high = use.launched;
  if (which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) use.reserved_high = use.launched;
}

}  // namespace cuvmm::sim
