// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "alloc/device_memory.hpp"
#include "alloc/eviction_set.hpp"
#include "spill/host_copies.hpp"
#include "spill/host_stock.hpp"

namespace cuvmm {

// Where the time of a pause or a resume goes: what the thread that does it is busy with.
struct PauseTimes {
  std::uint64_t drain_us = 0;   // until no call and no work was under way
  std::uint64_t host_us = 0;    // until memory of the host was there and pinned
  std::uint64_t copies_us = 0;  // waiting for copies
  std::uint64_t maps_us = 0;    // mapping and unmapping
  std::uint64_t chunks_us = 0;  // taking memory of the devices and giving it back
};

// One device's chunks on their way to the host and back. Their contents lie in the stock from
// `begin` on, in the order of their addresses. Nothing else touches the memory; the context is
// current.
class DeviceSwapOut {
 public:
  DeviceSwapOut(const Driver& driver, DeviceMemory& device, CUcontext context, EvictionSet evicted,
                Size begin);

  CUcontext context() const { return context_; }
  Size bytes() const { return bytes_; }
  Size stayed() const { return evicted_.stayed; }
  const char* why() const { return evicted_.why; }
  // Something has to be put back, or a copy may still run.
  bool has_begun() const { return gone_ != 0 || unfinished_ != nullptr; }

  // Copies, and gives each chunk back as soon as its contents are there. After an Error some of
  // them are away.
  Result<void> take_out(HostStock& stock, PauseTimes& times);
  // Where there is no memory for one, `instead` is asked, which may be nothing. After an Error all
  // that was away is still, and the device has its memory back.
  using Instead = std::function<Result<ChunkRef>(const EvictedChunk&)>;
  Result<void> put_back(HostStock& stock, const Instead& instead, PauseTimes& times);
  // Nothing is away any more.
  void end();

 private:
  Result<void> take_out_all(HostStock& stock, HostCopies& copies, PauseTimes& times);
  Result<void> release_up_to(Size offset, PauseTimes& times);
  Result<void> put_back_all(HostStock& stock, HostCopies& copies, const Instead& instead,
                            PauseTimes& times);
  Result<void> map_group(const Instead& instead, PauseTimes& times);
  Result<ChunkRef> take_chunk(const EvictedChunk& one, const Instead& instead);
  void undo_put_back();

  const Driver& driver_;
  DeviceMemory& device_;
  const CUcontext context_;
  EvictionSet evicted_;
  const Size begin_;
  std::vector<Size> ends_;  // of the chunks' contents, from `begin_` on
  Size bytes_ = 0;
  std::size_t gone_ = 0;                    // the first so many chunks have been taken out
  std::size_t mapped_ = 0;                  // of those, the first so many are mapped again
  std::unique_ptr<HostCopies> unfinished_;  // that the driver will not say are over
};

}  // namespace cuvmm
