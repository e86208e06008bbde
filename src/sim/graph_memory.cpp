// SPDX-License-Identifier: Apache-2.0
#include "sim/graph_memory.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "sim/device.hpp"
#include "sim/pool.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

struct All {
  static All& get() {
    static auto* all = new All;
    return *all;
  }
  Lock lock{LockOrder::SimPool};  // guards what follows
  std::map<CUdeviceptr, std::weak_ptr<GraphMemory>> known;
  std::map<CUdeviceptr, std::shared_ptr<GraphMemory>> allocated;
  std::array<GraphMemoryUse, most_devices> use{};

  GraphMemoryUse& use_of(const GraphMemory& memory) {
    return use[static_cast<std::size_t>(memory.device)];
  }
};

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
             .kind = AllocationKind::Async,
             .device = device.ordinal()});
  All& all = All::get();
  const Holding holding{all.lock};
  all.known[address] = memory;
  GraphMemoryUse& use = all.use_of(*memory);
  use.reserved += size;
  use.reserved_high = std::max(use.reserved_high, use.reserved);
  return memory;
}

GraphMemory::~GraphMemory() {
  AddressSpace& space = Process::get().space();
  space.take(address);
  {
    All& all = All::get();
    const Holding holding{all.lock};
    all.known.erase(address);
    all.use_of(*this).reserved -= size;
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
  All& all = All::get();
  const Holding holding{all.lock};
  if (!all.allocated.emplace(memory->address, memory).second) return false;
  GraphMemoryUse& use = all.use_of(*memory);
  use.used += memory->size;
  use.used_high = std::max(use.used_high, use.used);
  return true;
}

bool is_allocated(const GraphMemory& memory) {
  All& all = All::get();
  const Holding holding{all.lock};
  return all.allocated.count(memory.address) != 0;
}

std::shared_ptr<GraphMemory> take_graph_memory(CUdeviceptr address) {
  All& all = All::get();
  const Holding holding{all.lock};
  const auto found = all.allocated.find(address);
  if (found == all.allocated.end()) return nullptr;
  std::shared_ptr<GraphMemory> memory = std::move(found->second);
  all.allocated.erase(found);
  all.use_of(*memory).used -= memory->size;
  return memory;
}

GraphMemoryUse graph_memory_use(int device) {
  All& all = All::get();
  const Holding holding{all.lock};
  return all.use[static_cast<std::size_t>(device)];
}

void reset_graph_memory_high(int device, CUgraphMem_attribute which) {
  All& all = All::get();
  const Holding holding{all.lock};
  GraphMemoryUse& use = all.use[static_cast<std::size_t>(device)];
  if (which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) use.used_high = use.used;
  if (which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) use.reserved_high = use.reserved;
}

}  // namespace cuvmm::sim
