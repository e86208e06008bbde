// SPDX-License-Identifier: Apache-2.0
#include "spill/device_swap_out.hpp"

#include <algorithm>

#include "alloc/near_chunk.hpp"
#include "base/stopwatch.hpp"

namespace cuvmm {
namespace {

// Parts kept in flight before chunks are released, so that copying continues meanwhile.
constexpr std::size_t parts_ahead = 2;

// Mapped in one plan, which sets access with one call.
constexpr Size removed_at_once = 64 * MiB;

// Copies the contents of chunks, in sequence, into the stock from `begin` on, or out of it.
class Flow {
 public:
  Flow(HostStock& stock, Size begin, HostCopies& copies, PauseTimes& times)
      : stock_(stock), begin_(begin), copies_(copies), times_(times) {}

  // Calls `end_part(Size so far)` after each part of the stock.
  template <class EndPart>
  Result<void> copy(const EvictedChunk& one, const EndPart& end_part) {
    for (Size done = 0; done < one.size;) {
      if (room_.size == 0) {
        const Stopwatch host{times_.host_us};
        const Size offset = begin_ + reached_;
        room_ = copies_.can_stage() ? stock_.at(offset) : stock_.pinned_at(offset);
      }
      const Size size = std::min(room_.size, one.size - done);
      TRY(copy(one.address + done, size));
      done += size;
      reached_ += size;
      room_.bytes += size;
      room_.size -= size;
      if (room_.size == 0) TRY(end_part(reached_));
    }
    return {};
  }
  Result<void> finish() {
    const Stopwatch copying{times_.copies_us};
    TRY(copies_.end_part());
    return copies_.wait_for_all();
  }

 private:
  // Copies to or from `room_`. A copy through the ring may block this thread until a slot is free.
  Result<void> copy(CUdeviceptr device, Size size) {
    if (room_.is_pinned || !copies_.can_stage()) return copies_.add(device, room_.bytes, size);
    const Stopwatch copying{times_.copies_us};
    return copies_.add_staged(device, room_.bytes, size);
  }

  HostStock& stock_;
  const Size begin_;
  HostCopies& copies_;
  PauseTimes& times_;
  HostStock::Part room_;
  Size reached_ = 0;
};

}  // namespace

DeviceSwapOut::DeviceSwapOut(const Driver& driver, DeviceMemory* device, CUcontext context,
                             EvictionSet evicted, Size begin)
    : driver_(driver),
      device_(device),
      context_(context),
      evicted_(std::move(evicted)),
      begin_(begin) {
  std::sort(evicted_.chunks.begin(), evicted_.chunks.end(),
            [](const EvictedChunk& a, const EvictedChunk& b) { return a.address < b.address; });
  for (const EvictedChunk& one : evicted_.chunks) ends_.push_back(bytes_ += one.size);
}

void DeviceSwapOut::release_cache() {
  if (device_ == nullptr) return;
  device_->store().trim(device_->location(), 0);
  for (const DeviceMemory* neighbour : device_->spills_to()) {
    device_->store().trim(neighbour->location(), 0);
  }
}

Result<void> DeviceSwapOut::take_out(const HostSide& host, PauseTimes& times,
                                     const StillWanted& is_wanted,
                                     const std::function<void()>& has_released) {
  auto copies = TRY(HostCopies::open(driver_, CopyDirection::Out, host.ring));
  const Result<void> outcome = take_out_all(host.stock, *copies, times, is_wanted, has_released);
  if (!copies->are_over()) unfinished_ = std::move(copies);
  return outcome;
}

Result<void> DeviceSwapOut::take_out_all(HostStock& stock, HostCopies& copies, PauseTimes& times,
                                         const StillWanted& is_wanted,
                                         const std::function<void()>& has_released) {
  Flow flow{stock, begin_, copies, times};
  std::vector<Size> part_ends;
  const auto end_part = [&](Size reached) -> Result<void> {
    part_ends.push_back(reached);
    const bool is_ahead = part_ends.size() > parts_ahead;
    {
      const Stopwatch copying{times.copies_us};
      TRY(copies.end_part());
      if (is_ahead) TRY(copies.wait_for(part_ends.size() - parts_ahead));
    }
    if (is_ahead) {
      TRY(release_up_to(part_ends[part_ends.size() - parts_ahead - 1], times));
      has_released();
    }
    if (is_wanted()) return {};
    TRY(copies.wait_for_all());
    return called_off("pause");
  };
  for (const EvictedChunk& one : evicted_.chunks) TRY(flow.copy(one, end_part));
  TRY(flow.finish());
  return release_up_to(bytes_, times);
}

Result<void> DeviceSwapOut::release_up_to(Size offset, PauseTimes& times) {
  for (; gone_ < ends_.size() && ends_[gone_] <= offset; ++gone_) {
    EvictedChunk& one = evicted_.chunks[gone_];
    {
      const Stopwatch mapping{times.maps_us};
      const Result<void> taken = one.of->take_out(one);
      if (!taken.ok()) {
        ++gone_;  // counts as taken out, although part of it may still be mapped
        return taken;
      }
    }
    const Stopwatch releasing{times.chunks_us};
    release_free_chunks(one);
  }
  return {};
}

Result<void> DeviceSwapOut::put_back(const HostSide& host, const Instead& instead,
                                     PauseTimes& times) {
  return put_back_up_to(gone_, host, instead, times);
}

void DeviceSwapOut::return_ahead(const HostSide& host, PauseTimes& times) {
  if (device_ == nullptr) return;
  Size room = device_->budget().surplus();
  std::size_t end = back_;
  for (; end < gone_ && evicted_.chunks[end].size <= room; ++end) room -= evicted_.chunks[end].size;
  if (end != back_) (void)put_back_up_to(end, host, {}, times);
}

void DeviceSwapOut::leave_again() {
  if (unfinished_ == nullptr) undo_put_back();
}

Result<void> DeviceSwapOut::put_back_up_to(std::size_t end, const HostSide& host,
                                           const Instead& instead, PauseTimes& times) {
  if (unfinished_ != nullptr && !unfinished_->are_over()) {
    return Error{.kind = ErrorKind::DriverFailed,
                 .doing = "put memory back",
                 .subject = "a copy may still run"};
  }
  unfinished_.reset();
  if (back_ == end) return {};
  auto copies = TRY(HostCopies::open(driver_, CopyDirection::Back, host.ring));
  const Result<void> outcome = map_and_fill(end, host.stock, *copies, instead, times);
  if (!copies->are_over()) {
    unfinished_ = std::move(copies);
    mapped_ = back_ = 0;
  } else if (!outcome.ok()) {
    undo_put_back();
  } else {
    back_ = end;
  }
  return outcome;
}

Result<void> DeviceSwapOut::map_and_fill(std::size_t end, HostStock& stock, HostCopies& copies,
                                         const Instead& instead, PauseTimes& times) {
  Flow flow{stock, begin_ + (back_ == 0 ? 0 : ends_[back_ - 1]), copies, times};
  const auto end_part = [&](Size) {
    const Stopwatch copying{times.copies_us};
    return copies.end_part();
  };
  for (std::size_t i = back_; i < end; ++i) {
    if (i == mapped_) TRY(map_group(end, instead, times));
    TRY(flow.copy(evicted_.chunks[i], end_part));
  }
  return flow.finish();
}

// Maps the next group of chunks, all of one owner.
Result<void> DeviceSwapOut::map_group(std::size_t last, const Instead& instead, PauseTimes& times) {
  const std::span<EvictedChunk> all{evicted_.chunks.data(), last};
  std::size_t end = mapped_;
  Size size = 0;
  {
    const Stopwatch taking{times.chunks_us};
    for (; end < all.size() && all[end].of == all[mapped_].of; ++end) {
      if (end != mapped_ && size + all[end].size > removed_at_once) break;
      // A chunk may still be held from a take_out() that the driver refused.
      if (!all[end].chunk) all[end].chunk = TRY(take_chunk(all[end], instead));
      size += all[end].size;
    }
  }
  const Stopwatch mapping{times.maps_us};
  const std::size_t first = std::exchange(mapped_, end);  // even if only some of them get mapped
  return all[first].of->put_back(all.subspan(first, end - first));
}

Result<ChunkRef> DeviceSwapOut::take_chunk(const EvictedChunk& one, const Instead& instead) {
  Result<ChunkRef> taken = [&]() -> Result<ChunkRef> {
    if (one.properties == nullptr) {
      return device_->store().take({one.size, one.home, one.exportable});
    }
    return create_near(driver_, device_, one.size, *one.properties);
  }();
  if (taken.ok() || taken.error().kind != ErrorKind::OutOfMemory || !instead) return taken;
  return instead(one);
}

void DeviceSwapOut::release_free_chunks(const EvictedChunk& one) {
  if (one.properties == nullptr) device_->store().trim(one.home, 0);
}

// Loses nothing: the contents are still in the stock.
void DeviceSwapOut::undo_put_back() {
  for (std::size_t i = 0; i < gone_; ++i) {
    EvictedChunk& one = evicted_.chunks[i];
    if (!one.chunk) continue;
    if (i >= mapped_) one.chunk = {};
    if (i < mapped_ && !one.of->take_out(one).ok()) (void)one.of->take_out(one);
    release_free_chunks(one);
  }
  mapped_ = back_ = 0;
}

void DeviceSwapOut::end() {
  for (EvictionSource* owner : evicted_.owners) owner->end_eviction();
  for (EvictedChunk& one : evicted_.chunks) one.chunk = {};
  gone_ = mapped_ = back_ = 0;
}

}  // namespace cuvmm
