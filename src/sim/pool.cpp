// SPDX-License-Identifier: Apache-2.0
#include "sim/pool.hpp"

#include <algorithm>
#include <atomic>

#include "sim/context.hpp"
#include "sim/device.hpp"
#include "sim/process.hpp"
#include "sim/stream.hpp"

namespace cuvmm::sim {
namespace {

constexpr Size pool_step = 512;

std::uint64_t next_pool_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// The queues that the stream's next work comes after by the rules of the legacy stream.
std::vector<const Queue*> queues_before(const Stream& stream) {
  const auto context = stream.context.lock();
  if (context == nullptr) return {};
  if (stream.is_blocking()) return {context->legacy_stream()->queue.get()};
  std::vector<const Queue*> queues;
  if (stream.kind != StreamKind::Legacy) return queues;
  for (const auto& other : context->streams()) {
    if (other->is_blocking()) queues.push_back(other->queue.get());
  }
  return queues;
}

}  // namespace

Pool::Pool(const Properties& properties)
    : properties_(properties), id_(next_pool_id()), memory_(properties.device) {}

// Allocation --------------------------------------------------------------------------------------

bool Pool::may_use(const Taker& taker, const std::vector<Point>& after, Reuse reuse) const {
  if (reuse == Reuse::AfterPending) return true;
  return std::all_of(after.begin(), after.end(), [&](const Point& point) {
    if (point.queue.get() == taker.queue) return true;
    const bool is_before = std::find(taker.queues_before.begin(), taker.queues_before.end(),
                                     point.queue.get()) != taker.queues_before.end();
    if (is_before || (follow_events_ && taker.queue->follows(point))) return true;
    return reuse == Reuse::Opportunistic && opportunistic_ && Queue::has_reached(point);
  });
}

// Finds windows of `size` bytes in runs of adjacent usable and unmapped addresses: at the beginning
// of each run, and at both ends of the mapped parts in it.
template <class Usable>
std::vector<Pool::Window> Pool::windows(Size size, Usable&& usable) const {
  struct Stretch {
    CUdeviceptr begin;
    CUdeviceptr end;
    bool is_mapped;
  };
  std::vector<Stretch> row;  // adjacent, without a gap
  std::vector<Window> found;

  const Size piece = memory_.piece_size();
  const auto consider = [&](CUdeviceptr address) {
    const CUdeviceptr end = address + size;
    if (address < row.front().begin || end > row.back().end) return;
    Window window{address, size, 0, row.back().end - row.front().begin};
    for (const Stretch& stretch : row) {
      const CUdeviceptr from = std::max(address, stretch.begin);
      const CUdeviceptr to = std::min(end, stretch.end);
      if (stretch.is_mapped || from >= to) continue;
      window.new_bytes +=
          round_up(to - stretch.begin, piece) - round_down(from - stretch.begin, piece);
    }
    found.push_back(window);
  };
  const auto consider_row = [&] {
    if (row.empty()) return;
    consider(row.front().begin);
    for (const Stretch& stretch : row) {
      if (!stretch.is_mapped) continue;
      consider(stretch.begin);
      consider(stretch.end - size);
    }
    row.clear();
  };
  const auto add = [&](CUdeviceptr begin, Size bytes, bool is_mapped) {
    if (!row.empty() && row.back().end != begin) consider_row();
    row.push_back({begin, begin + bytes, is_mapped});
  };

  auto free = free_.by_address().begin();
  auto unmapped = memory_.unmapped().begin();
  const auto no_free = free_.by_address().end();
  const auto no_unmapped = memory_.unmapped().end();
  while (free != no_free || unmapped != no_unmapped) {
    if (unmapped == no_unmapped || (free != no_free && free->first < unmapped->first)) {
      if (usable(free->second.after)) add(free->first, free->second.size, true);
      ++free;
    } else {
      add(unmapped->first, unmapped->second, false);
      ++unmapped;
    }
  }
  consider_row();
  return found;
}

// Maps the unmapped parts of the window. Its free parts stay in free_.
bool Pool::map_rest(const Window& window) {
  const Size piece = memory_.piece_size();
  const CUdeviceptr end = window.address + window.size;
  struct Part {
    CUdeviceptr address;
    Size size;
  };
  std::vector<Part> parts;
  for (const auto& [begin, size] : memory_.unmapped()) {
    const CUdeviceptr from = std::max(window.address, begin);
    const CUdeviceptr to = std::min(end, begin + size);
    if (from >= to) continue;
    const CUdeviceptr first = begin + round_down(from - begin, piece);
    parts.push_back({first, begin + round_up(to - begin, piece) - first});
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (memory_.map(parts[i].address, parts[i].size)) continue;
    while (i-- > 0) memory_.unmap(parts[i].address, parts[i].size);
    return false;
  }
  for (const Part& part : parts) free_.add({part.address, part.size, {}});
  reserved_high_ = std::max(reserved_high_, memory_.mapped_bytes());
  return true;
}

std::optional<CUdeviceptr> Pool::take_mapped(const Taker& taker, Size size, Reuse reuse) {
  return free_.take_best_fit(
      size, [&](const std::vector<Point>& after) { return may_use(taker, after, reuse); });
}

std::optional<Pool::Taken> Pool::take(const Taker& taker, Size size, Reuse reuse) {
  if (const auto address = take_mapped(taker, size, Reuse::InOrder)) return Taken{*address, {}};
  if (const auto address = take_mapped(taker, size, Reuse::Opportunistic)) {
    return Taken{*address, {}};
  }
  const auto usable = [&](const std::vector<Point>& after) { return may_use(taker, after, reuse); };
  auto found = windows(size, usable);
  if (found.empty() && memory_.add_addresses(size)) found = windows(size, usable);
  if (found.empty()) return std::nullopt;
  // First choice: mapped memory only, in several ranges. Then the smallest run of addresses, as the
  // real driver chooses (measured). Then the window that needs the least new memory.
  const auto by_new_bytes = [](const Window& a, const Window& b) {
    return a.new_bytes < b.new_bytes;
  };
  const auto by_row = [](const Window& a, const Window& b) { return a.row < b.row; };
  const auto cheapest = std::min_element(found.begin(), found.end(), by_new_bytes);
  if (cheapest->new_bytes == 0) return take_window(*cheapest);
  if (auto taken = take_window(*std::min_element(found.begin(), found.end(), by_row))) return taken;
  return take_window(*cheapest);
}

std::optional<Pool::Taken> Pool::take_window(const Window& window) {
  const Size room = properties_.max_size - std::min(properties_.max_size, memory_.mapped_bytes());
  if (window.new_bytes > room || !map_rest(window)) return std::nullopt;
  return Taken{window.address, free_.take(window.address, window.size)};
}

void Pool::count_used(Size size) {
  ++live_;
  used_ += size;
  used_high_ = std::max(used_high_, used_);
}

CUresult Pool::allocate(const std::shared_ptr<Stream>& stream, Size size, CUdeviceptr* address) {
  const Size rounded = round_up(size, pool_step);
  const Size most = properties_.device != nullptr ? properties_.device->memory() : TiB;
  if (rounded == 0 || rounded > most) return CUDA_ERROR_OUT_OF_MEMORY;
  const Taker taker{stream->queue.get(), queues_before(*stream)};
  const auto attempt = [&](Reuse reuse) -> std::optional<Taken> {
    const Holding holding{lock_};
    // Another thread has destroyed it, and would not see the allocation.
    if (retired_) return {};
    auto taken = take(taker, rounded, reuse);
    if (taken) count_used(size);
    return taken;
  };
  auto taken = attempt(Reuse::Opportunistic);
  if (!taken && properties_.device != nullptr) {
    release_unused_pool_memory(*properties_.device);
    taken = attempt(Reuse::Opportunistic);
  }
  if (!taken && internal_dependencies_) {
    taken = attempt(Reuse::AfterPending);
    if (taken) {
      for (const Point& point : taken->after) order_after(*stream, point);
    }
  }
  if (!taken) return is_retired() ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  Process::get().space().add(
      {.address = taken->address,
       .size = size,
       .kind = AllocationKind::Async,
       .device = properties_.device != nullptr ? properties_.device->ordinal() : -1,
       .pool = weak_from_this()});
  *address = taken->address;
  return CUDA_SUCCESS;
}

// Freeing and releasing ---------------------------------------------------------------------------

void Pool::put_back(const Allocation& allocation, std::vector<Point> after) {
  --live_;
  freed_since_sync_ = true;
  free_.add({allocation.address, round_up(allocation.size, pool_step), std::move(after)});
}

void Pool::give_back(const Allocation& allocation, std::vector<Point> after) {
  const Holding holding{lock_};
  used_ -= allocation.size;
  put_back(allocation, std::move(after));
}

void Pool::give_back_uncounted(const Allocation& allocation, std::vector<Point> after) {
  const Holding holding{lock_};
  put_back(allocation, std::move(after));
}

void Pool::release_down_to(Size kept) {
  const Size piece = memory_.piece_size();
  struct Part {
    CUdeviceptr address;
    Size size;
  };
  std::vector<Part> parts;
  Size left = memory_.mapped_bytes();
  for (auto range = free_.by_address().rbegin(); range != free_.by_address().rend(); ++range) {
    if (left < piece || left - piece < kept) break;
    if (!range->second.after.empty()) continue;
    const CUdeviceptr begin = round_up(range->first, piece);
    const CUdeviceptr end = round_down(range->first + range->second.size, piece);
    if (begin >= end) continue;
    const Size size = std::min<Size>(end - begin, round_down(left - kept, piece));
    parts.push_back({end - size, size});
    left -= size;
  }
  for (const Part& part : parts) {
    free_.take(part.address, part.size);
    memory_.unmap(part.address, part.size);
  }
}

void Pool::synchronised(const std::vector<Point>* waited_for) {
  const auto is_past = [&](const Point& point) {
    if (!Queue::has_reached(point)) return false;
    return waited_for == nullptr ||
           std::any_of(waited_for->begin(), waited_for->end(), [&](const Point& waited) {
             if (waited.queue == point.queue) return waited.number >= point.number;
             return waited.queue != nullptr && waited.queue->follows(point);
           });
  };
  const Holding holding{lock_};
  if (!freed_since_sync_) return;
  freed_since_sync_ = false;
  free_.forget_points([&](const Point& point) {
    const bool past = is_past(point);
    if (!past) freed_since_sync_ = true;
    return past;
  });
  release_down_to(release_threshold_);
}

void Pool::trim_to(Size kept) {
  const Holding holding{lock_};
  release_down_to(kept);
}

void Pool::count_import(int by) {
  const Holding holding{lock_};
  live_ += static_cast<std::uint64_t>(by);
}

void Pool::retire() {
  const Holding holding{lock_};
  retired_ = true;
  release_threshold_ = 0;
  freed_since_sync_ = true;
}

bool Pool::is_retired() const {
  const Holding holding{lock_};
  return retired_;
}

bool Pool::is_done() const {
  const Holding holding{lock_};
  if (!retired_ || live_ != 0) return false;
  const auto& free = free_.by_address();
  return std::all_of(free.begin(), free.end(), [](const auto& range) {
    const std::vector<Point>& after = range.second.after;
    return std::all_of(after.begin(), after.end(),
                       [](const Point& point) { return Queue::has_reached(point); });
  });
}

// Attributes --------------------------------------------------------------------------------------

CUresult Pool::get_attribute(CUmemPool_attribute attribute, void* value) const {
  const Holding holding{lock_};
  const auto flag = [&](bool set) { *static_cast<int*>(value) = set ? 1 : 0; };
  const auto bytes = [&](Size size) { *static_cast<cuuint64_t*>(value) = size; };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      flag(follow_events_);
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      flag(opportunistic_);
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      flag(internal_dependencies_);
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      bytes(release_threshold_);
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      bytes(memory_.mapped_bytes());
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      bytes(reserved_high_);
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      bytes(used_);
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      bytes(used_high_);
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult Pool::set_attribute(CUmemPool_attribute attribute, const void* value) {
  const Holding holding{lock_};
  const auto flag = [&] { return *static_cast<const int*>(value) != 0; };
  const auto bytes = [&] { return *static_cast<const cuuint64_t*>(value); };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      follow_events_ = flag();
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      opportunistic_ = flag();
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      internal_dependencies_ = flag();
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      release_threshold_ = bytes();
      freed_since_sync_ = true;  // memory kept so far may now exceed it
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (bytes() != 0) return CUDA_ERROR_INVALID_VALUE;
      reserved_high_ = memory_.mapped_bytes();
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (bytes() != 0) return CUDA_ERROR_INVALID_VALUE;
      used_high_ = used_;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

Access Pool::access_of(int who) const {
  const Holding holding{lock_};
  return memory_.access_of(who);
}

CUresult Pool::set_access(int who, Access access) {
  const Holding holding{lock_};
  return memory_.set_access(who, access);
}

}  // namespace cuvmm::sim
