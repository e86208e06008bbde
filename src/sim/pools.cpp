// SPDX-License-Identifier: Apache-2.0
// The pools of the process, and what is freed past them.
#include <algorithm>

#include "sim/blocking.hpp"
#include "sim/context.hpp"
#include "sim/device.hpp"
#include "sim/pool.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

// All pools that hold memory, destroyed ones too while that is in use.
class AllPools {
 public:
  static AllPools& get() {
    static auto* const all = new AllPools;  // outlives every thread
    return *all;
  }

  void add(std::shared_ptr<Pool> pool) {
    const Writing writing{lock_};
    pools_.push_back(std::move(pool));
  }
  void remove(const std::shared_ptr<Pool>& pool) {
    const Writing writing{lock_};
    std::erase(pools_, pool);
  }
  std::vector<std::shared_ptr<Pool>> of(const Device& device) const {
    const Reading reading{lock_};
    std::vector<std::shared_ptr<Pool>> found;
    for (const auto& pool : pools_) {
      // Work of any device may use memory of the host.
      const Device* home = pool->properties().device;
      if (home == nullptr || home == &device) found.push_back(pool);
    }
    return found;
  }

 private:
  mutable SharedLock lock_{LockOrder::SimHandles};  // guards what follows
  std::vector<std::shared_ptr<Pool>> pools_;
};

void drop_if_done(const std::shared_ptr<Pool>& pool) {
  if (pool->is_done()) AllPools::get().remove(pool);
}

std::shared_ptr<Pool> default_pool_under_lock(Device& device) {
  if (device.default_pool == nullptr) {
    device.default_pool = create_pool({.device = &device, .is_default = true});
  }
  return device.default_pool;
}

// Whatever work there is now that may use memory of any device.
std::vector<Point> all_pending_work() {
  std::vector<Point> points;
  for (const auto& context : Process::get().contexts.all()) {
    for (const auto& stream : context->streams()) {
      if (!stream->queue->is_idle()) points.push_back(stream->queue->last());
    }
  }
  return points;
}

}  // namespace

std::shared_ptr<Pool> default_pool_of(Device& device) {
  const Holding holding{Process::get().lock};
  return default_pool_under_lock(device);
}

std::shared_ptr<Pool> current_pool_of(Device& device) {
  const Holding holding{Process::get().lock};
  if (device.current_pool != nullptr) return device.current_pool;
  return default_pool_under_lock(device);
}

std::shared_ptr<Pool> create_pool(const Pool::Properties& properties) {
  auto pool = std::make_shared<Pool>(properties);
  AllPools::get().add(pool);
  Process::get().pools.add(pool);
  return pool;
}

CUresult destroy_pool(CUmemoryPool handle) {
  Process& process = Process::get();
  const auto pool = process.pools.find(handle);
  if (pool == nullptr || pool->properties().is_default) return CUDA_ERROR_INVALID_VALUE;
  if (process.pools.remove(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  {
    const Holding holding{process.lock};
    for (int ordinal = 0; ordinal < process.device_count(); ++ordinal) {
      Device& device = *process.device(ordinal);
      if (device.current_pool == pool) device.current_pool = nullptr;  // the default one again
    }
  }
  pool->retire();
  drop_if_done(pool);
  return CUDA_SUCCESS;
}

void pools_synchronised(Device& device) {
  for (const auto& pool : AllPools::get().of(device)) {
    pool->synchronised();
    drop_if_done(pool);
  }
}

void release_unused_pool_memory(Device& device) {
  for (const auto& pool : AllPools::get().of(device)) {
    if (pool->properties().device == nullptr) continue;
    pool->synchronised();
    pool->trim_to(0);
    drop_if_done(pool);
  }
}

CUresult free_async_without_waiting(const Allocation& allocation) {
  const auto taken = Process::get().space().take(allocation.address);
  // Only one of two threads that free it at once gets it.
  if (!taken.has_value()) return CUDA_ERROR_INVALID_VALUE;
  if (const auto pool = taken->pool.lock()) {
    pool->give_back_uncounted(*taken, all_pending_work());
    drop_if_done(pool);
  } else {
    Process::get().space().free_block(taken->address);  // a graph's
  }
  return CUDA_SUCCESS;
}

CUresult reserve_graph_memory(Device& device, Size size, CUdeviceptr* address) {
  AddressSpace& space = Process::get().space();
  const Size whole = round_up(size, 2 * MiB);
  if (whole == 0 || whole > device.memory()) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr found = space.allocate_block(device, whole, {device.ordinal()});
  if (found == 0) {
    release_unused_pool_memory(device);
    found = space.allocate_block(device, whole, {device.ordinal()});
  }
  if (found == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  space.add(
      {.address = found, .size = size, .kind = AllocationKind::Async, .device = device.ordinal()});
  *address = found;
  return CUDA_SUCCESS;
}

void release_graph_memory(CUdeviceptr address) {
  AddressSpace& space = Process::get().space();
  if (space.take(address).has_value()) space.free_block(address);
}

}  // namespace cuvmm::sim
