// SPDX-License-Identifier: Apache-2.0
#include "alloc/memory.hpp"

#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "alloc/held_back.hpp"
#include "alloc/out_of_memory.hpp"
#include "base/log.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {
namespace {

bool lacks_memory(const Result<Allocation*>& made) {
  return !made.ok() && made.error().kind == ErrorKind::OutOfMemory;
}

}  // namespace

Memory::Memory(const Surroundings& around, const MemorySettings& settings)
    : around_(around), settings_(settings) {}
Memory::~Memory() = default;

// What is made is made for good: a device that could not be served once never is.
DeviceMemory* Memory::device(int ordinal) {
  if (ordinal < 0 || ordinal >= AccessSet::most_devices) return nullptr;
  Device& device = devices_[static_cast<std::size_t>(ordinal)];
  const Serving serving = device.serving.load(std::memory_order_acquire);
  if (serving == Serving::Drivers) return nullptr;
  DeviceMemory* const memory =
      serving == Serving::Ours ? device.memory.get() : make_device(ordinal);
  if (memory != nullptr && settings_.spill.to != SpillTo::Off) find_places_to_spill(*memory);
  return memory;
}

DeviceMemory* Memory::make_device(int ordinal) {
  Device& device = devices_[static_cast<std::size_t>(ordinal)];
  const Holding holding{devices_lock_};
  if (device.serving.load() == Serving::Ours) return device.memory.get();
  if (device.serving.load() == Serving::Drivers) return nullptr;
  auto made = DeviceMemory::create(around_.driver, ordinal, settings_);
  if (!made.ok()) {
    CUVMM_LOG(Warning, "device %d: %s; its memory is the driver's", ordinal,
              made.error().text().c_str());
    device.serving.store(Serving::Drivers, std::memory_order_release);
    return nullptr;
  }
  device.memory = std::move(*made);
  device.serving.store(Serving::Ours, std::memory_order_release);
  return device.memory.get();
}

// Under no lock: a neighbour may have to be made.
void Memory::find_places_to_spill(DeviceMemory& memory) {
  auto& has_places = devices_[static_cast<std::size_t>(memory.ordinal())].has_places;
  if (has_places.load(std::memory_order_relaxed) || has_places.exchange(true)) return;
  memory.find_places_to_spill(around_.driver, neighbours_to_spill_to(memory.ordinal()));
}

std::vector<DeviceMemory*> Memory::neighbours_to_spill_to(int ordinal) {
  std::vector<DeviceMemory*> neighbours;
  if (settings_.spill.to == SpillTo::Host) return neighbours;
  const Driver& driver = around_.driver;
  std::vector<int> named = settings_.spill_peers.devices;
  int count = 0;
  if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) return neighbours;
  if (named.empty()) {
    for (int other = 0; other < count; ++other) named.push_back(other);
  }
  for (const int other : named) {
    if (other == ordinal || other >= count) continue;
    int reaches = 0;
    if (driver.cuDeviceCanAccessPeer(&reaches, ordinal, other) != CUDA_SUCCESS) continue;
    if (reaches == 0) continue;
    if (DeviceMemory* const neighbour = make_device(other)) neighbours.push_back(neighbour);
  }
  return neighbours;
}

void Memory::give(Allocation& allocation, CUdeviceptr* address,
                  const Allocation::Holding& holding) {
  allocation.hold(holding);
  if (!allocation.is_listed()) map_.add(allocation);
  *address = allocation.address();
}

// Only what is truly a lack of memory is answered as one. With anything else that stands in our
// way, the driver may do better.
Answer Memory::refuse(const Error& error, Size asked, const DeviceMemory& device) {
  if (error.kind != ErrorKind::OutOfMemory && error.kind != ErrorKind::TimedOut) {
    CUVMM_LOG(Warning, "%s; the driver is asked instead", error.text().c_str());
    return std::nullopt;
  }
  report_out_of_memory(error, asked, device, mapped_free_on(device.ordinal()));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Threads that lack memory come here one by one, or each would take what the others had let go of.
// With no lock of an arena or of windows held, theirs can be waited for; a reclaim cannot.
template <class Attempt>
Result<Allocation*> Memory::again_under_pressure(DeviceMemory& device, Size size, Attempt attempt) {
  constexpr int most_attempts = 16;  // others may be faster so often
  const auto wait = std::chrono::duration_cast<std::chrono::nanoseconds>(settings_.wait);
  const std::uint64_t until = now_ns() + static_cast<std::uint64_t>(wait.count());
  const Size wanted = round_up(size, device.granule());
  const Holding alone{device.pressure()};
  for (int attempts = 1;; ++attempts) {
    const bool some_work_ended = around_.clock.wait_for_frees(device.ordinal(), until);
    const bool some_let_go = let_go_on(device, wanted) != 0;
    Result<Allocation*> made = attempt();
    if (!lacks_memory(made)) return made;
    if (attempts == most_attempts || now_ns() >= until) return made;
    if (!some_work_ended && !some_let_go) return made;
  }
}

Answer Memory::allocate(CUdeviceptr* address, Size size, const Preparation& for_resize) {
  if (address == nullptr || size == 0 || around_.captures.any()) return std::nullopt;
  if (context_is_lost_.load(std::memory_order_relaxed)) return std::nullopt;
  const CUcontext current = current_context(around_.driver);
  if (is_dead(current)) return std::nullopt;
  ContextMemory* owner = current != nullptr ? context(current) : nullptr;
  if (owner == nullptr) return std::nullopt;
  if (size > owner->device().memory()) return CUDA_ERROR_OUT_OF_MEMORY;
  auto made = owner->allocate(size, for_resize);
  if (lacks_memory(made)) {
    made = again_under_pressure(owner->device(), size,
                                [&] { return owner->allocate(size, for_resize); });
  }
  if (!made.ok()) return refuse(made.error(), size, owner->device());
  give(**made, address,
       {.asked = size,
        .buffer_id = last_buffer_id_.fetch_add(1) + 1,
        .owner = owner,
        .served = ContextMemory::served_as(size),
        .device = static_cast<std::int16_t>(owner->device().ordinal())});
  return CUDA_SUCCESS;
}

// Rows begin at multiples of 512 bytes, as the driver has it.
Answer Memory::allocate_pitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                              unsigned element) {
  constexpr Size row_step = 512;
  if (pitch == nullptr || width == 0 || height == 0) return std::nullopt;
  if (element != 4 && element != 8 && element != 16) return std::nullopt;
  const Size row = round_up(width, row_step);
  Size size = 0;
  if (row == 0 || __builtin_mul_overflow(row, Size{height}, &size)) return std::nullopt;
  const Answer answer = allocate(address, size);
  if (answer == CUDA_SUCCESS) *pitch = row;
  return answer;
}

bool Memory::is_capturing(StreamName stream) const {
  if (!around_.captures.any()) return false;
  const Driver& driver = around_.driver;
  const CUstream handle = stream.is_per_thread() ? CU_STREAM_PER_THREAD
                          : stream.is_legacy()   ? CU_STREAM_LEGACY
                                                 : stream.handle;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver.cuStreamIsCapturing(handle, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Answer Memory::allocate_ordered(CUdeviceptr* address, Size size, StreamName stream) {
  if (address == nullptr || size == 0 || is_capturing(stream)) return std::nullopt;
  StreamState* state = around_.clock.table().find(stream);
  if (state == nullptr) return std::nullopt;
  return allocate_from(current_pool(state->device), address, size, *state);
}

Answer Memory::allocate_ordered(CUdeviceptr* address, Size size, CUmemoryPool handle,
                                StreamName stream) {
  if (address == nullptr || size == 0 || is_capturing(stream)) return std::nullopt;
  StreamState* state = around_.clock.table().find(stream);
  if (state == nullptr) return std::nullopt;
  return allocate_from(pool(handle), address, size, *state);
}

Answer Memory::allocate_from(PoolMemory* pool, CUdeviceptr* address, Size size,
                             StreamState& stream) {
  if (pool == nullptr || context_is_lost_.load(std::memory_order_relaxed)) return std::nullopt;
  if (is_dead(stream.context)) return std::nullopt;
  DeviceMemory& device = pool->device();
  if (size > device.memory()) return CUDA_ERROR_OUT_OF_MEMORY;
  auto made = pool->allocate(size, stream.id);
  if (lacks_memory(made)) {
    made = again_under_pressure(device, size, [&] { return pool->allocate(size, stream.id); });
  }
  if (!made.ok()) return refuse(made.error(), size, device);
  give(**made, address,
       {.asked = size,
        .buffer_id = last_buffer_id_.fetch_add(1, std::memory_order_relaxed) + 1,
        .owner = pool,
        .served = Served::StreamOrdered,
        .device = static_cast<std::int16_t>(device.ordinal())});
  return CUDA_SUCCESS;
}

// The driver refuses, and breaks the capture, in the modes where it would do so for the program's
// own call. Where it does not, it has waited for the work of the current context, as a free does.
CUresult Memory::free_as_the_driver_does() {
  CUdeviceptr probe = 0;
  CUresult answer = around_.driver.cuMemAlloc(&probe, 1);
  if (answer == CUDA_ERROR_OUT_OF_MEMORY && make_room()) {
    answer = around_.driver.cuMemAlloc(&probe, 1);
  }
  if (answer != CUDA_SUCCESS) return answer;
  answer = around_.driver.cuMemFree(probe);
  if (answer == CUDA_SUCCESS) return answer;
  // A capture that forbids it began between the two.
  const RelaxedCapture relaxed{around_.driver};
  around_.driver.cuMemFree(probe);
  return answer;
}

Answer Memory::free(CUdeviceptr address) {
  if (address == 0) return std::nullopt;
  const auto found = find_start(address);
  if (!found) return find_holder(address) ? Answer{CUDA_ERROR_INVALID_VALUE} : std::nullopt;
  if (found->facts.served == Served::Opened) return CUDA_ERROR_INVALID_VALUE;
  if (found->facts.served != Served::StreamOrdered) return free_blocking(*found);
  if (around_.captures.any()) {
    const CUresult refusal = free_as_the_driver_does();
    if (refusal != CUDA_SUCCESS && refusal != CUDA_ERROR_OUT_OF_MEMORY) return refusal;
  }
  // The driver waits for nothing here. The memory stays mapped until what runs now is done.
  const CUcontext current = current_context(around_.driver);
  if (current == nullptr) return std::nullopt;
  return free_pooled(*found, around_.clock.ticket_of_all(current));
}

// False where another thread was faster.
bool Memory::let_go(const AllocationMap::Found& found) {
  if (!found.allocation->let_go(found.facts)) return false;
  if ((found.facts.pins & pin::sync_memops) != 0) sync_memops_.fetch_sub(1);
  return true;
}

Answer Memory::free_pooled(const AllocationMap::Found& found, const FreeTicket& ticket) {
  if (!let_go(found)) return CUDA_ERROR_INVALID_VALUE;
  static_cast<PoolMemory*>(found.facts.owner)->free(*found.allocation, ticket);
  return CUDA_SUCCESS;
}

Answer Memory::free_blocking(const AllocationMap::Found& found) {
  auto& owner = *static_cast<ContextMemory*>(found.facts.owner);
  if (around_.captures.any()) {
    const InContext in_context{around_.driver, owner.context()};
    const CUresult refusal = free_as_the_driver_does();
    if (refusal == CUDA_SUCCESS) return free_now(found);
    if (refusal != CUDA_ERROR_OUT_OF_MEMORY) return refusal;
    return free_later(found);  // the card has no room left to try it with
  }
  if (settings_.free == FreeMode::Relaxed) return free_later(found);
  if (!let_go(found)) return CUDA_ERROR_INVALID_VALUE;
  const auto waited = wait_for_work_of(owner);
  if (!waited.ok() && waited.error().kind == ErrorKind::OutOfMemory) {
    // The card has no room left for the block that waits. Nobody has the memory before its time.
    end_blocking(found, around_.clock.ticket_of_all(owner.context()));
    return CUDA_SUCCESS;
  }
  if (!waited.ok()) {
    found.allocation->hold_again();
    return to_cuda(waited.error());
  }
  end_blocking(found, {});
  return CUDA_SUCCESS;
}

// What other processes have open is freed when they are done with it.
void Memory::end_blocking(const AllocationMap::Found& found, const FreeTicket& ticket) {
  const bool was_lent = (found.allocation->pins() & pin::legacy_ipc) != 0;
  if (was_lent && !lending_.end(found.facts.buffer_id, ticket)) return;
  static_cast<ContextMemory*>(found.facts.owner)->free_after(*found.allocation, ticket);
}

Answer Memory::free_now(const AllocationMap::Found& found) {
  if (!let_go(found)) return CUDA_ERROR_INVALID_VALUE;
  end_blocking(found, {});
  return CUDA_SUCCESS;
}

bool Memory::wait_before_free(ContextMemory& context) {
  if (settings_.free == FreeMode::Exact) return wait_for_work_of(context).ok();
  return around_.clock.wait_for_all(context.context(), now_ns());
}

Answer Memory::free_later(const AllocationMap::Found& found) {
  if (!let_go(found)) return CUDA_ERROR_INVALID_VALUE;
  const auto& owner = *static_cast<ContextMemory*>(found.facts.owner);
  end_blocking(found, around_.clock.ticket_of_all(owner.context()));
  return CUDA_SUCCESS;
}

// To synchronise breaks a capture that another thread begins meanwhile; a free does not.
CUresult Memory::wait_for_the_current_context() {
  if (around_.captures.ever()) return free_as_the_driver_does();
  const Captures::HeldOff held_off{around_.captures};
  return held_off.none_lives() ? around_.driver.cuCtxSynchronize_v2000()
                               : free_as_the_driver_does();
}

// As long as it takes, as the driver does. Nothing to wait for where nothing was submitted since
// the last time.
Result<void> Memory::wait_for_work_of(ContextMemory& context) {
  const std::uint64_t note = around_.work_note.take();
  if (around_.sees_everything() && context.covered_note().load() == note) return {};
  const Horizon horizon = around_.clock.horizon_of(context.context());
  const InContext in_context{around_.driver, context.context()};
  const CUresult answer = wait_for_the_current_context();
  if (is_sticky(answer)) context_is_lost();
  TRY(around_.driver.check(answer, "wait for the context"));
  horizon.reached();
  context.covered_note().store(note);
  return {};
}

Result<void> Memory::wait_for_work_of(CUcontext context) {
  const RelaxedCapture relaxed{around_.driver};
  const InContext in_context{around_.driver, context};
  const CUresult answer = around_.driver.cuCtxSynchronize_v2000();
  if (is_sticky(answer)) context_is_lost();
  return around_.driver.check(answer, "wait for the context");
}

Answer Memory::free_ordered(CUdeviceptr address, StreamName stream) {
  if (address == 0) return std::nullopt;
  const auto found = find_start(address);
  if (!found) return find_holder(address) ? Answer{CUDA_ERROR_INVALID_VALUE} : std::nullopt;
  if (found->facts.served == Served::Opened) return CUDA_ERROR_INVALID_VALUE;
  if (is_capturing(stream)) return std::nullopt;
  StreamState* state = around_.clock.table().find(stream);
  if (state == nullptr) return std::nullopt;
  if (found->facts.served == Served::StreamOrdered) return free_pooled(*found, state->ticket());
  if (!let_go(*found)) return CUDA_ERROR_INVALID_VALUE;
  end_blocking(*found, state->ticket());
  return CUDA_SUCCESS;
}

namespace {

bool is_blocking(const AllocationFacts& facts) {
  return facts.served == Served::Small || facts.served == Served::Window;
}

// What a context held went with it, though its records remain.
std::optional<AllocationMap::Found> if_served(std::optional<AllocationMap::Found> found) {
  if (!found || !is_blocking(found->facts)) return found;
  if (static_cast<const ContextMemory*>(found->facts.owner)->has_ended()) return std::nullopt;
  return found;
}

}  // namespace

std::optional<AllocationMap::Found> Memory::find_start(CUdeviceptr address) const {
  return if_served(map_.find_start(address));
}

std::optional<AllocationMap::Found> Memory::find_holder(CUdeviceptr address) const {
  return if_served(map_.find(address));
}

std::optional<AllocationFacts> Memory::find(CUdeviceptr address) const {
  const auto found = find_holder(address);
  return found ? std::optional{found->facts} : std::nullopt;
}

const PoolMemory* Memory::pool_of(const AllocationFacts& facts) const {
  return facts.served == Served::StreamOrdered ? static_cast<const PoolMemory*>(facts.owner)
                                               : nullptr;
}

const ContextMemory* Memory::context_of(const AllocationFacts& facts) const {
  return is_blocking(facts) ? static_cast<const ContextMemory*>(facts.owner) : nullptr;
}

CUcontext Memory::context_handle_of(const AllocationFacts& facts) const {
  if (facts.served == Served::Opened) return static_cast<CUcontext>(facts.owner);
  const ContextMemory* const context = context_of(facts);
  return context != nullptr ? context->context() : nullptr;
}

void Memory::set_sync_memops(CUdeviceptr address, bool on) {
  const auto found = find_holder(address);
  if (!found || on == ((found->facts.pins & pin::sync_memops) != 0)) return;
  sync_memops_.fetch_add(on ? 1 : -1);
  if (on) {
    pin(address, pin::sync_memops);
  } else if (!is_blocking(found->facts)) {
    found->allocation->drop_pin(pin::sync_memops);
  } else {
    static_cast<ContextMemory*>(found->facts.owner)->unpin(*found->allocation, pin::sync_memops);
  }
}

bool Memory::pin(CUdeviceptr address, std::uint8_t why) {
  const auto found = find_holder(address);
  if (!found) return false;
  // Whoever has it notes what the first pin changes, so it comes from there.
  if (is_blocking(found->facts)) {
    static_cast<ContextMemory*>(found->facts.owner)->pin(*found->allocation, why);
  } else {
    found->allocation->add_pin(why);
  }
  return true;
}

Result<Memory::Lent> Memory::lend(CUdeviceptr address, const Lending::Secret& fresh) {
  constexpr const char* doing = "lend memory";
  const auto found = find_holder(address);
  if (!found || !is_blocking(found->facts)) {
    return Error::invalid(doing, "it is no blocking memory of ours");
  }
  auto& owner = *static_cast<ContextMemory*>(found->facts.owner);
  if (owner.device().exportable() == Export::No) {
    return Error{.kind = ErrorKind::NotSupported,
                 .doing = doing,
                 .subject = "the device gives no memory to other processes"};
  }
  owner.pin(*found->allocation, pin::legacy_ipc);
  const Lent lent{found->facts.buffer_id, lending_.lend(*found->allocation, found->facts, fresh)};
  // Freed meanwhile by another thread, which may have looked before it was pinned.
  const auto still = find_holder(address);
  if (still && still->facts.buffer_id == lent.id) return lent;
  lending_.forget(lent.id);
  return Error::invalid(doing, "it is being freed");
}

void Memory::list_opened(Allocation& record, CUdeviceptr address, Size size, CUcontext context) {
  record.place(address, size);
  record.hold({.asked = size,
               .buffer_id = last_buffer_id_.fetch_add(1, std::memory_order_relaxed) + 1,
               .owner = context,
               .served = Served::Opened,
               .device = static_cast<std::int16_t>(device_of(around_.driver, context))});
  map_.add(record);
}

void Memory::unlist_opened(Allocation& record) {
  if ((record.pins() & pin::sync_memops) != 0) sync_memops_.fetch_sub(1);
  record.unplace();
}

}  // namespace cuvmm
