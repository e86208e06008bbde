// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "alloc/device_memory.hpp"
#include "alloc/eviction_set.hpp"
#include "spill/host_copies.hpp"
#include "spill/host_stock.hpp"
#include "spill/quiesce.hpp"

namespace cuvmm {

// Where the time of a pause or a resume goes, as the thread that performs it sees it.
struct PauseTimes {
  std::uint64_t drain_us = 0;   // until no call and no work was in flight
  std::uint64_t host_us = 0;    // allocating and pinning host memory
  std::uint64_t copies_us = 0;  // waiting for copies
  std::uint64_t maps_us = 0;    // mapping and unmapping
  std::uint64_t chunks_us = 0;  // allocating and releasing device memory
};

// Where contents go on the host.
struct HostSide {
  HostStock& stock;
  std::span<std::byte> ring =
      {};  // pinned, to copy through what is not; empty: everything is pinned
};

// Swaps one device's chunks out to the host and back in. Their contents lie in the stock from
// `begin` on, in address order. Nothing else may touch the memory, and the context must be current.
class DeviceSwapOut {
 public:
  // `device`: nullptr if all chunks are the program's own.
  DeviceSwapOut(const Driver& driver, DeviceMemory* device, CUcontext context, EvictionSet evicted,
                Size begin);

  CUcontext context() const { return context_; }
  Size bytes() const { return bytes_; }
  Size stayed() const { return evicted_.stayed; }
  const char* why() const { return evicted_.why; }
  // True if something has to be put back, or a copy may still be running.
  bool has_begun() const { return gone_ != 0 || unfinished_ != nullptr; }
  // Everything has been put back, and can still leave_again().
  bool is_back() const { return gone_ != 0 && back_ == gone_; }

  // Releases the free chunks, on neighbouring devices too: nothing but this program could use them.
  void release_cache();
  // Copies the chunks out, releasing each as soon as its contents have arrived. After an Error some
  // of them are out. TimedOut once `is_wanted` returns false. Calls `has_released` after each part.
  Result<void> take_out(const HostSide& host, PauseTimes& times, const StillWanted& is_wanted,
                        const std::function<void()>& has_released);
  // Copies the chunks back in. If the device has no memory for one, asks `instead`, which may be
  // empty. After an Error everything that was out is still out, and the memory taken for it has
  // been released. Does nothing if everything is back. Until end(), leave_again() undoes it.
  using Instead = std::function<Result<ChunkRef>(const EvictedChunk&)>;
  Result<void> put_back(const HostSide& host, const Instead& instead, PauseTimes& times);
  // Once put_back() has failed for lack of memory: asks the lessor, if there is one, for room,
  // which other programs may have to make. Returns whether another attempt may succeed.
  bool wait_for_room(std::uint64_t until, const StillWanted& is_wanted) {
    return device_ != nullptr && bytes_ != 0 &&
           device_->budget().wait_for_more(bytes_, until, until, is_wanted);
  }
  // Copies chunks back in, in order, while the device's lease has room for them. put_back() does
  // the rest. If something fails, all that was out is still out.
  void return_ahead(const HostSide& host, PauseTimes& times);
  // Undoes put_back() and return_ahead(). The contents have not changed meanwhile, so nothing is
  // copied.
  void leave_again();
  // Call once everything is back.
  void end();

 private:
  Result<void> take_out_all(HostStock& stock, HostCopies& copies, PauseTimes& times,
                            const StillWanted& is_wanted,
                            const std::function<void()>& has_released);
  Result<void> release_up_to(Size offset, PauseTimes& times);
  Result<void> put_back_up_to(std::size_t end, const HostSide& host, const Instead& instead,
                              PauseTimes& times);
  Result<void> map_and_fill(std::size_t end, HostStock& stock, HostCopies& copies,
                            const Instead& instead, PauseTimes& times);
  Result<void> map_group(std::size_t last, const Instead& instead, PauseTimes& times);
  Result<ChunkRef> take_chunk(const EvictedChunk& one, const Instead& instead);
  void undo_put_back();
  void release_free_chunks(const EvictedChunk& one);

  const Driver& driver_;
  DeviceMemory* const device_;
  const CUcontext context_;
  EvictionSet evicted_;
  const Size begin_;
  std::vector<Size> ends_;  // end offsets of the chunks' contents, relative to `begin_`
  Size bytes_ = 0;
  std::size_t gone_ = 0;                    // the first `gone_` chunks have been taken out
  std::size_t mapped_ = 0;                  // of those, the first `mapped_` are mapped again,
  std::size_t back_ = 0;                    // and the first `back_` have their contents
  std::unique_ptr<HostCopies> unfinished_;  // copies that the driver has not confirmed as finished
};

}  // namespace cuvmm
