// SPDX-License-Identifier: Apache-2.0
// The pools of the process, and frees that bypass streams.
#include <algorithm>

#include "base/made_once.hpp"
#include "sim/device.hpp"
#include "sim/graph_memory.hpp"
#include "sim/pool.hpp"
#include "sim/pool_sharing.hpp"
#include "sim/process.hpp"

namespace cuvmm::sim {
namespace {

// All pools that hold memory, including destroyed ones whose memory is still in use.
class AllPools {
 public:
  static AllPools& get() {
    static constinit MadeOnce<AllPools> all;
    return all.get();
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
      // Work of any device may use host memory.
      const Device* home = pool->properties().device;
      if (home == nullptr || home == &device) found.push_back(pool);
    }
    return found;
  }

 private:
  mutable SharedLock lock_{LockOrder::SimHandles};  // guards the members below
  std::vector<std::shared_ptr<Pool>> pools_;
};

std::shared_ptr<Pool> default_pool_under_lock(Device& device) {
  if (device.default_pool == nullptr) {
    device.default_pool = create_pool({.device = &device, .is_default = true});
  }
  return device.default_pool;
}

}  // namespace

void release_if_unused(const std::shared_ptr<Pool>& pool) {
  if (pool->is_done()) AllPools::get().remove(pool);
}

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
      if (device.current_pool == pool) device.current_pool = nullptr;  // back to the default pool
    }
  }
  pool->retire();
  release_if_unused(pool);
  return CUDA_SUCCESS;
}

void pools_synchronised(Device& device, const std::vector<Point>* waited_for) {
  for (const auto& pool : AllPools::get().of(device)) {
    pool->synchronised(waited_for);
    release_if_unused(pool);
  }
}

void release_unused_pool_memory(Device& device) {
  for (const auto& pool : AllPools::get().of(device)) {
    if (pool->properties().device == nullptr) continue;
    pool->synchronised();
    pool->trim_to(0);
    release_if_unused(pool);
  }
}

CUresult free_async_without_waiting(const Allocation& allocation) {
  const auto pool = allocation.pool.lock();
  if (pool == nullptr) {
    return take_graph_memory(allocation.address) != nullptr ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_VALUE;
  }
  // If two threads free it at once, only one of them gets it.
  const auto taken = Process::get().space().take(allocation.address);
  if (!taken.has_value()) return CUDA_ERROR_INVALID_VALUE;
  if (pool->is_imported()) {
    unmap_imported(*taken);
  } else {
    pool->give_back_uncounted(*taken, {});
  }
  release_if_unused(pool);
  return CUDA_SUCCESS;
}

}  // namespace cuvmm::sim
