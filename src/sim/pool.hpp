// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/lock.hpp"
#include "base/size.hpp"
#include "sim/address_space.hpp"
#include "sim/cuda.hpp"
#include "sim/executor.hpp"
#include "sim/free_ranges.hpp"
#include "sim/pool_memory.hpp"

namespace cuvmm::sim {

class Device;
class PoolImport;
struct Stream;

// Stream-ordered memory. An address is returned at once and may be used in the order of the stream
// that requested it. Freed memory is available to its own stream at once, and to other streams when
// its pending work is done or when their work is ordered after it.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  struct Properties {
    Device* device = nullptr;  // nullptr: the host
    Size max_size = unlimited;
    unsigned handle_types = 0;
    bool is_default = false;
    std::shared_ptr<PoolImport> import;  // another process's pool: allocates no memory of its own
  };
  explicit Pool(const Properties& properties);

  const Properties& properties() const { return properties_; }
  std::uint64_t id() const { return id_; }
  bool is_imported() const { return properties_.import != nullptr; }
  CUmemoryPool handle() const { return reinterpret_cast<CUmemoryPool>(const_cast<Pool*>(this)); }

  CUresult allocate(const std::shared_ptr<Stream>& stream, Size size, CUdeviceptr* address);

  // The allocation must already be removed from the address space. `after`: the work that may still
  // use its memory.
  void give_back(const Allocation& allocation, std::vector<Point> after);
  // As give_back(), but the memory still counts as used. The real driver never subtracts memory
  // that cuMemFree frees (measured, 580.159).
  void give_back_uncounted(const Allocation& allocation, std::vector<Point> after);

  // For an imported pool: adds to the number of the other process's allocations that are mapped
  // here.
  void count_import(int by);

  CUresult get_attribute(CUmemPool_attribute attribute, void* value) const;
  CUresult set_attribute(CUmemPool_attribute attribute, const void* value);
  Access access_of(int who) const;
  CUresult set_access(int who, Access access);

  // Called when the program has waited for these points, or for all work that is done by now.
  // Memory used only by that work becomes available to all streams, and is returned to the device
  // as far as it exceeds the release threshold.
  void synchronised(const std::vector<Point>* waited_for = nullptr);
  // Releases free memory, but keeps at least `kept` bytes mapped. Releases only memory known to be
  // unused: memory that was freed, but whose work was not waited for, stays.
  void trim_to(Size kept);

  // Called when the program destroys the pool, which lives on until its allocations are freed.
  void retire();
  bool is_retired() const;
  // Whether it was retired and none of its memory is in use any more.
  bool is_done() const;

 private:
  // The stream that requests memory, and the queues whose work precedes its own in any case.
  struct Taker {
    const Queue* queue;
    std::vector<const Queue*> queues_before;
  };
  struct Window {
    CUdeviceptr address = 0;
    Size size = 0;
    Size new_bytes = 0;  // to be mapped
    Size row = 0;        // size of the run of usable and unmapped addresses that contains it
  };
  // A range that was taken, and the points that the taking stream must be ordered after first.
  struct Taken {
    CUdeviceptr address = 0;
    std::vector<Point> after;
  };
  // Which freed memory an allocation may reuse, from the real driver's preference to its last
  // resort (measured): memory that the stream is ordered after anyway; memory whose work happens to
  // be done; memory whose work must be waited for.
  enum class Reuse : std::uint8_t { InOrder, Opportunistic, AfterPending };

  // The caller holds lock_ for all of these.
  bool may_use(const Taker& taker, const std::vector<Point>& after, Reuse reuse) const;
  std::optional<CUdeviceptr> take_mapped(const Taker& taker, Size size, Reuse reuse);
  std::optional<Taken> take(const Taker& taker, Size size, Reuse reuse);
  template <class Usable>
  std::vector<Window> windows(Size size, Usable&& usable) const;
  std::optional<Taken> take_window(const Window& window);
  bool map_rest(const Window& window);
  void release_down_to(Size kept);
  void count_used(Size size);
  void put_back(const Allocation& allocation, std::vector<Point> after);

  const Properties properties_;
  const std::uint64_t id_;

  mutable Lock lock_{LockOrder::SimPool};  // guards the members below
  PoolMemory memory_;
  FreeRanges free_;
  std::uint64_t live_ = 0;
  bool retired_ = false;
  bool freed_since_sync_ = false;
  Size release_threshold_ = 0;
  bool follow_events_ = true;
  bool opportunistic_ = true;
  bool internal_dependencies_ = true;
  Size used_ = 0;
  Size used_high_ = 0;
  Size reserved_high_ = 0;
};

// The pools of a device, created on first use.
std::shared_ptr<Pool> default_pool_of(Device& device);
std::shared_ptr<Pool> current_pool_of(Device& device);
// Creates a pool for the program.
std::shared_ptr<Pool> create_pool(const Pool::Properties& properties);
// Returns CUDA_ERROR_INVALID_VALUE for a default pool.
CUresult destroy_pool(CUmemoryPool pool);

// Releases a destroyed pool if none of its memory is in use any more.
void release_if_unused(const std::shared_ptr<Pool>& pool);

// Called when the program has waited for work of this device: up to these points, or all of it.
void pools_synchronised(Device& device, const std::vector<Point>* waited_for = nullptr);
// Releases the unused memory of the device's pools, for a caller that found the device full.
void release_unused_pool_memory(Device& device);

// cuMemFree of stream-ordered memory. Does not wait, and the memory is available to all streams at
// once, since a program that frees this way has waited for its work (measured).
CUresult free_async_without_waiting(const Allocation& allocation);

}  // namespace cuvmm::sim
