// SPDX-License-Identifier: Apache-2.0
#include "sim/host_memory.hpp"

#include <sys/mman.h>

#include "base/host_memory.hpp"
#include "sim/context.hpp"
#include "sim/managed_advice.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

constexpr Size host_step = 4 * KiB;

bool is_of_the_host(const Allocation& allocation) {
  return allocation.kind == AllocationKind::PinnedHost ||
         allocation.kind == AllocationKind::Registered ||
         allocation.kind == AllocationKind::Managed;
}

}  // namespace

CUdeviceptr take_host_memory(Size size) {
  if (size > total_host_memory()) return 0;
  void* bytes = mmap(nullptr, round_up(size, host_step), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return bytes == MAP_FAILED ? 0 : reinterpret_cast<CUdeviceptr>(bytes);
}

void give_host_memory_back(CUdeviceptr address, Size size) {
  munmap(reinterpret_cast<void*>(address), round_up(size, host_step));
}

std::optional<Allocation> managed_allocation(CUdeviceptr address, Size size) {
  auto allocation = Process::get().space().allocation_at(address);
  if (!allocation.has_value() || allocation->kind != AllocationKind::Managed) return std::nullopt;
  if (size > allocation->end() - address) return std::nullopt;
  return allocation;
}

// assumed for registered and managed memory; measured for cuMemAllocHost
void free_host_memory_of(const std::shared_ptr<Context>& context) {
  AddressSpace& space = Process::get().space();
  const auto owned = space.allocations_if([&](const Allocation& allocation) {
    return is_of_the_host(allocation) && allocation.context.lock() == context;
  });
  for (const Allocation& allocation : owned) {
    if (!space.take(allocation.address).has_value()) continue;
    if (allocation.kind == AllocationKind::Registered) continue;  // the program's own memory
    if (allocation.kind == AllocationKind::Managed) {
      ManagedAdvices::get().remove(allocation.address);
    }
    give_host_memory_back(allocation.address, allocation.size);
  }
}

}  // namespace cuvmm::sim
