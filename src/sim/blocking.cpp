// SPDX-License-Identifier: Apache-2.0
#include "sim/blocking.hpp"

#include <algorithm>

#include "sim/context.hpp"
#include "sim/cost_model.hpp"
#include "sim/device.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

constexpr Size block_step = 512;
constexpr Size granule_size = 2 * MiB;

}  // namespace

Size SmallBlocks::Granule::largest() const {
  Size largest = 0;
  for (const auto& [offset, size] : free) largest = std::max(largest, size);
  return largest;
}

void SmallBlocks::change(Granules::iterator granule, const std::function<void(Granule&)>& change) {
  by_largest_.erase({granule->second.largest(), granule->first});
  change(granule->second);
  by_largest_.insert({granule->second.largest(), granule->first});
}

CUdeviceptr SmallBlocks::take(Size size, const std::vector<int>& accessors) {
  size = round_up(size, block_step);
  const Holding holding{lock_};
  auto fitting = by_largest_.lower_bound({size, 0});
  if (fitting == by_largest_.end()) {
    const CUdeviceptr address =
        Process::get().space().allocate_block(device_, granule_size, accessors);
    if (address == 0) return 0;
    granules_[address].free[0] = granule_size;
    fitting = by_largest_.insert({granule_size, address}).first;
  }
  const auto granule = granules_.find(fitting->second);
  Size offset = 0;
  change(granule, [&](Granule& changed) {
    const auto stretch = std::find_if(changed.free.begin(), changed.free.end(),
                                      [&](const auto& free) { return free.second >= size; });
    offset = stretch->first;
    const Size rest = stretch->second - size;
    changed.free.erase(stretch);
    if (rest != 0) changed.free[offset + size] = rest;
    changed.used += size;
  });
  return granule->first + offset;
}

void SmallBlocks::give_back(CUdeviceptr address, Size size) {
  size = round_up(size, block_step);
  const Holding holding{lock_};
  const auto granule = std::prev(granules_.upper_bound(address));
  change(granule, [&](Granule& changed) {
    Size offset = address - granule->first;
    changed.used -= size;
    auto next = changed.free.lower_bound(offset);
    if (next != changed.free.end() && next->first == offset + size) {
      size += next->second;
      next = changed.free.erase(next);
    }
    if (next != changed.free.begin() &&
        std::prev(next)->first + std::prev(next)->second == offset) {
      std::prev(next)->second += size;
    } else {
      changed.free[offset] = size;
    }
  });
  if (granule->second.used != 0) return;
  by_largest_.erase({granule->second.largest(), granule->first});
  const CUdeviceptr empty = granule->first;
  granules_.erase(granule);
  Process::get().space().free_block(empty);
}

CUresult allocate_blocking(const std::shared_ptr<Context>& context, Size size,
                           CUdeviceptr* address) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  const Size whole = round_up(size, granule_size);
  if (whole == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  AddressSpace& space = Process::get().space();
  const std::vector<int> accessors = context->accessors();
  const CUdeviceptr found = SmallBlocks::serves(size)
                                ? context->small_blocks().take(size, accessors)
                                : space.allocate_block(context->device(), whole, accessors);
  if (found == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  space.add({.address = found,
             .size = size,
             .kind = AllocationKind::Blocking,
             .device = context->device().ordinal(),
             .context = context});
  cost_of(Row::cuMemAlloc_v2, size);
  *address = found;
  return CUDA_SUCCESS;
}

void free_blocking_now(const Allocation& allocation) {
  cost_of(Row::cuMemFree_v2, allocation.size);
  const auto context = allocation.context.lock();
  if (context != nullptr && SmallBlocks::serves(allocation.size)) {
    context->small_blocks().give_back(allocation.address, allocation.size);
  } else {
    Process::get().space().free_block(allocation.address);
  }
}

}  // namespace cuvmm::sim
