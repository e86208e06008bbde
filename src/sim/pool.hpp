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

// Stream-ordered memory. An address is handed out at once and may be used in the order of the
// stream that asked for it; what is freed serves its own stream at once and others when its work
// is done, or when they come after it anyway.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  struct Properties {
    Device* device = nullptr;  // nullptr: the host
    Size max_size = unlimited;
    unsigned handle_types = 0;
    bool is_default = false;
    std::shared_ptr<PoolImport> import;  // another process' pool: it gives no memory of its own
  };
  explicit Pool(const Properties& properties);

  const Properties& properties() const { return properties_; }
  std::uint64_t id() const { return id_; }
  bool is_imported() const { return properties_.import != nullptr; }
  CUmemoryPool handle() const { return reinterpret_cast<CUmemoryPool>(const_cast<Pool*>(this)); }

  CUresult allocate(const std::shared_ptr<Stream>& stream, Size size, CUdeviceptr* address);

  // The allocation is no longer known to the address space. `after`: the work that may still use
  // its memory.
  void give_back(const Allocation& allocation, std::vector<Point> after);
  // The real driver goes on counting as used what cuMemFree frees (measured, 580.159).
  void give_back_uncounted(const Allocation& allocation, std::vector<Point> after);

  // Of an imported pool: how many allocations of the other process are mapped.
  void count_import(int by);

  CUresult get_attribute(CUmemPool_attribute attribute, void* value) const;
  CUresult set_attribute(CUmemPool_attribute attribute, const void* value);
  Access access_of(int who) const;
  CUresult set_access(int who, Access access);

  // The program waited for work: for these points, or for all that is done by now. What only such
  // work used is free for everybody, and goes back to the device beyond the release threshold.
  void synchronised(const std::vector<Point>* waited_for = nullptr);
  // Gives free memory back as long as at least that much stays. Only what is known to be unused:
  // what was freed, but not waited for, stays.
  void trim_to(Size kept);

  // The program destroyed it: it lives on until its allocations are freed.
  void retire();
  // Whether it was retired and nothing uses its memory any more.
  bool is_done() const;

 private:
  // Who asks for memory, and whose work comes before his anyway.
  struct Taker {
    const Queue* queue;
    std::vector<const Queue*> queues_before;
  };
  struct Window {
    CUdeviceptr address = 0;
    Size size = 0;
    Size new_bytes = 0;  // to be mapped
    Size row = 0;        // usable and unmapped addresses that it is cut from
  };
  // A range taken, and what the taking stream must be made to follow first.
  struct Taken {
    CUdeviceptr address = 0;
    std::vector<Point> after;
  };
  // What memory will do, from what the real driver prefers to what it falls back on (measured):
  // what comes after its last use anyway; what happens to be done; what must be waited for.
  enum class Reuse : std::uint8_t { InOrder, Opportunistic, AfterPending };

  // All under lock_.
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

  mutable Lock lock_{LockOrder::SimPool};  // guards what follows
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

// The pools of a device, made when first asked for.
std::shared_ptr<Pool> default_pool_of(Device& device);
std::shared_ptr<Pool> current_pool_of(Device& device);
// A pool of the program's.
std::shared_ptr<Pool> create_pool(const Pool::Properties& properties);
// CUDA_ERROR_INVALID_VALUE for a default pool.
CUresult destroy_pool(CUmemoryPool pool);

// Releases a destroyed pool that nothing uses any more.
void drop_if_done(const std::shared_ptr<Pool>& pool);

// The program waited for work of this device: up to these points, or for all.
void pools_synchronised(Device& device, const std::vector<Point>* waited_for = nullptr);
// Gives back what pools of the device hold and nobody uses, for somebody who found none.
void release_unused_pool_memory(Device& device);

// cuMemFree of stream-ordered memory: does not wait, and the memory serves anybody at once: the
// program that frees this way has waited for its work (measured).
CUresult free_async_without_waiting(const Allocation& allocation);

}  // namespace cuvmm::sim
