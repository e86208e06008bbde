// SPDX-License-Identifier: Apache-2.0
#include "resize/resizable.hpp"

#include <algorithm>

#include "base/undo.hpp"
#include "driver/current_context.hpp"
#include "stream/captures.hpp"
#include "trace/record_event.hpp"
#include "vmm/deferred_release.hpp"

namespace cuvmm {
namespace {

// Larger chunks cost less to map, but only whole chunks can be released.
constexpr Size largest_chunk = 256 * MiB;

// The addresses that the device translates by one page table. A buffer that ends in a table of its
// own costs one more table, created and destroyed each time.
constexpr Size table_reach = 512 * MiB;

// After all other clients that could release memory.
constexpr int reclaim_order = 1;

void end_event(const Driver& driver, CUevent event) {
  release_or_defer(Deferred::Copy, [&driver, event] {
    const CUresult answer = driver.cuEventDestroy(event);
    // The event was destroyed with its context.
    const bool is_gone = answer == CUDA_ERROR_INVALID_HANDLE ||
                         answer == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
                         answer == CUDA_ERROR_INVALID_CONTEXT;
    return is_gone ? CUDA_SUCCESS : answer;
  });
}

bool has_happened(const Driver& driver, CUcontext context, CUevent event) {
  const InContext in_context{driver, context};
  const RelaxedCapture relaxed{driver};
  return says_nothing_runs(in_context.ok() ? driver.cuEventQuery(event) : in_context.answer());
}

}  // namespace

Result<std::unique_ptr<Resizable>> Resizable::create(const Driver& driver, DeviceMemory& device,
                                                     Size most) {
  if (most == 0) return Error::invalid("reserve a resizable buffer", "of no bytes");
  const Size whole = round_up(most, device.granule());
  if (whole == 0) {
    return Error{
        .kind = ErrorKind::OutOfAddresses, .doing = "reserve a resizable buffer", .asked = most};
  }
  const Size alignment = whole < table_reach ? device.granule() : table_reach;
  Reservation addresses = TRY(Reservation::create(driver, whole, device.granule(), alignment));
  std::unique_ptr<Resizable> made{new Resizable{driver, device, most, std::move(addresses)}};
  made->registration_ = device.store().add_client(*made, reclaim_order);
  CUVMM_TRACE(.event = TraceEvent::Reserve, .device = static_cast<std::int16_t>(device.ordinal()),
              .address = made->address(), .size = whole);
  return made;
}

Resizable::Resizable(const Driver& driver, DeviceMemory& device, Size most, Reservation addresses)
    : driver_(driver),
      device_(device),
      most_(most),
      addresses_(std::move(addresses)),
      mapping_(Mapping::of(addresses_)),
      requested_(device.store()) {}

Resizable::~Resizable() {
  registration_ = {};
  for (const Shrink& shrink : shrinks_) end_event(driver_, shrink.event);
  CUVMM_TRACE(.event = TraceEvent::Unreserve,
              .device = static_cast<std::int16_t>(device_.ordinal()), .address = address(),
              .size = addresses_.size());
}

Size Resizable::size() const {
  const Holding holding{lock_};
  return size_;
}

Size Resizable::physical_bytes() const {
  const Holding holding{lock_};
  return mapping_.mapped_bytes();
}

void Resizable::set_size(Size size) {
  size_ = size;
  requested_.set(size);
}

// The chunks are adjacent, starting at the first byte.
Size Resizable::mapped_end() const {
  return mapping_.mapped_bytes();
}

Result<void> Resizable::resize(Size size, const After& after) {
  if (size > most_) {
    return Error{.kind = ErrorKind::InvalidArgument,
                 .doing = "resize",
                 .subject = "more than was reserved",
                 .asked = size,
                 .available = most_};
  }
  const Size before = this->size();
  if (size >= before) {
    TRY(grow(size));
  } else if (after) {
    TRY(shrink_after(size, *after));
  } else {
    TRY(shrink_now(size));
  }
  CUVMM_TRACE(.event = TraceEvent::Resize, .device = static_cast<std::int16_t>(device_.ordinal()),
              .address = address(), .size = size,
              .stream = after ? reinterpret_cast<std::uint64_t>(*after) : 0, .other = before);
  return {};
}

// Takes as few chunks as possible. Called without the lock, because other holders are asked to
// release memory.
Result<std::vector<ChunkRef>> Resizable::take(Size bytes) {
  ChunkStore& store = device_.store();
  std::vector<ChunkRef> chunks;
  while (bytes != 0) {
    const Size next = std::min(bytes, largest_chunk);
    Result<ChunkRef> one = store.take({next, device_.location()}, this);
    if (!one.ok()) break;
    chunks.push_back(std::move(one).value());
    bytes -= next;
  }
  if (bytes == 0) return chunks;
  const std::size_t small = bytes / device_.granule();
  for (ChunkRef& one : TRY(store.take_many({device_.granule(), device_.location()}, small, this))) {
    chunks.push_back(std::move(one));
  }
  return chunks;
}

// The chunks that were taken are free in the store now, and not yet released.
Error Resizable::refusal(Error error, Size wanted) const {
  if (error.kind != ErrorKind::OutOfMemory) return error;
  error.doing = "grow a resizable buffer";
  error.subject = device_.limit() == unlimited ? "the device's memory" : "see VMM_LIMIT";
  error.asked = wanted;
  error.available = std::min(wanted, device_.store().counters(device_.location()).physical_free);
  return error;
}

Result<void> Resizable::grow(Size size) {
  const Size wanted = whole(size);
  for (;;) {
    Size end = 0;
    {
      const Holding holding{lock_};
      (void)settle();
      end = mapped_end();
      if (end >= wanted) {
        // Memory that was to go once a stream has passed is needed again.
        for (Shrink& shrink : shrinks_) shrink.keep = std::max(shrink.keep, wanted);
        set_size(std::max(size_, size));
        return {};
      }
    }
    // Unless they get mapped, chunks created for this return to the driver.
    ChunkStore& store = device_.store();
    Undo release{
        [&store, where = device_.location(),
         before = store.counters(device_.location()).physical_free] { store.trim(where, before); }};
    const Result<std::vector<ChunkRef>> taken = take(wanted - end);
    if (!taken.ok()) return refusal(taken.error(), wanted - end);
    const std::vector<ChunkRef>& chunks = *taken;
    const Holding holding{lock_};
    if (mapped_end() != end) continue;  // another thread was faster
    MapPlan plan;
    Size offset = end;
    for (const ChunkRef& chunk : chunks) {
      plan.map(mapping_, offset, chunk, AccessSet::of(device_.ordinal()));
      offset += chunk->size();
    }
    TRY(plan.commit());
    release.keep();
    for (Shrink& shrink : shrinks_) shrink.keep = std::max(shrink.keep, wanted);
    set_size(std::max(size_, size));
    return {};
  }
}

Result<void> Resizable::release_mapping_beyond(Size keep) {
  MapPlan plan;
  mapping_.for_each([&](const MappedChunk& mapped) {
    if (mapped.offset >= keep) plan.unmap(mapping_, mapped.offset);
  });
  return plan.is_empty() ? Result<void>{} : plan.commit();
}

// Of the current context; of the primary context if none is current.
Result<void> Resizable::wait_for_work() const {
  constexpr const char* waiting = "wait for what uses the buffer";
  if (current_context(driver_) != nullptr) {
    return driver_.check(driver_.cuCtxSynchronize_v2000(), waiting);
  }
  unsigned flags = 0;
  int is_active = 0;
  TRY(driver_.check(driver_.cuDevicePrimaryCtxGetState(device_.ordinal(), &flags, &is_active),
                    waiting));
  if (is_active == 0) return {};
  CUcontext context = nullptr;
  TRY(driver_.check(driver_.cuDevicePrimaryCtxRetain(&context, device_.ordinal()), waiting));
  const InContext in_context{driver_, context};
  const CUresult waited = in_context.ok() ? driver_.cuCtxSynchronize_v2000() : in_context.answer();
  driver_.cuDevicePrimaryCtxRelease(device_.ordinal());
  return driver_.check(waited, waiting);
}

Result<void> Resizable::shrink_now(Size size) {
  TRY(wait_for_work());
  const Holding holding{lock_};
  // Pending shrinks may belong to work of other contexts that is still running, and may use the
  // memory until the last of them.
  (void)settle();
  if (shrinks_.empty()) {
    TRY(release_mapping_beyond(whole(size)));
  } else {
    Size& keep = shrinks_.back().keep;
    keep = std::min(keep, whole(size));
  }
  set_size(size);
  return {};
}

Result<void> Resizable::shrink_after(Size size, CUstream stream) {
  constexpr const char* doing = "mark where a stream is done with a buffer";
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  TRY(driver_.check(driver_.cuStreamIsCapturing(stream, &capture), doing));
  if (capture != CU_STREAM_CAPTURE_STATUS_NONE) return Error::invalid(doing, "it is captured");
  const CUcontext context = current_context(driver_);
  if (context == nullptr) return Error::invalid(doing, "no context is current");
  CUevent event = nullptr;
  TRY(driver_.check(driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), doing));
  const Result<void> recorded = driver_.check(driver_.cuEventRecord(event, stream), doing);
  if (!recorded.ok()) {
    end_event(driver_, event);
    return recorded;
  }
  const Holding holding{lock_};
  shrinks_.push_back({whole(size), context, event});
  set_size(size);
  (void)settle();
  return {};
}

// Unmaps what the streams have passed, in the order of the requests. Returns how many bytes.
Size Resizable::settle() {
  const Size before = mapped_end();
  while (!shrinks_.empty()) {
    const Shrink next = shrinks_.front();
    if (!has_happened(driver_, next.context, next.event)) break;
    if (!release_mapping_beyond(next.keep).ok()) break;
    end_event(driver_, next.event);
    shrinks_.erase(shrinks_.begin());
  }
  return before - mapped_end();
}

bool Resizable::is_waiting() {
  const Holding holding{lock_};
  (void)settle();
  return !shrinks_.empty();
}

Size Resizable::reclaim(Size, Location where) {
  if (!(where == device_.location())) return 0;
  const Holding holding{lock_, std::try_to_lock};
  return holding.owns_lock() ? settle() : 0;
}

}  // namespace cuvmm
