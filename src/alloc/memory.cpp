// SPDX-License-Identifier: Apache-2.0
// Memory: allocating, lending, and what the program sees as free.
#include "alloc/memory.hpp"

#include <utility>

#include "alloc/out_of_memory.hpp"
#include "base/log.hpp"
#include "driver/current_context.hpp"

namespace cuvmm {
namespace {

// The callback for DeviceReclaim::retry(): repeats the attempt and stores its outcome in `made`.
template <class Made, class Attempt>
auto again(Made& made, const Attempt& attempt) {
  return [&made, &attempt] {
    made = attempt();
    return DeviceReclaim::may_help(made);
  };
}

}  // namespace

Memory::Memory(const Dependencies& dependencies, const MemorySettings& settings)
    : dependencies_(dependencies), settings_(settings) {
  if (settings_.host == nullptr) settings_.host = std::make_shared<LeasedBudget>();
}
Memory::~Memory() = default;

// Answers out of memory only for a real lack of memory. After any other failure the driver may do
// better, within the limit.
Answer Memory::refuse(Error error, Size asked, const DeviceMemory& device,
                      const MemoryPressure& pressure) {
  const bool is_lack = error.kind == ErrorKind::OutOfMemory || error.kind == ErrorKind::TimedOut;
  if (!is_lack && device.budget().available() >= asked) {
    CUVMM_LOG(Warning, "%s; falling back to the driver", error.text().c_str());
    return std::nullopt;
  }
  if (error.tried != 0) pressure.tried.stand_in(error);
  report_out_of_memory(error, asked, device, holdings_.mapped_free(device.ordinal()));
  return refuse_allocation(device.ordinal());
}

Answer Memory::allocate(CUdeviceptr* address, Size size, const GrowHint& grow_hint) {
  if (address == nullptr || size == 0 || dependencies_.captures.any()) return std::nullopt;
  if (work_.has_lost_a_context()) return std::nullopt;
  const CUcontext current = current_context(dependencies_.driver);
  const auto serve = [&] {
    const bool is_ours = current != nullptr && !contexts_.is_dead(current);
    return is_ours ? contexts_.serve(current) : nullptr;
  };
  ContextMemory* owner = serve();
  if (owner == nullptr) return std::nullopt;
  DeviceMemory& device = owner->device();
  if (size > device.memory()) return refuse_allocation(device.ordinal());
  MemoryPressure pressure{settings_.wait};
  const Size held_before = device.budget().held_bytes();
  auto made = owner->allocate(size, grow_hint, pressure);
  if (DeviceReclaim::may_help(made)) {
    // The context may end while this thread waits for a lease, outside the barrier.
    const auto attempt = [&]() -> decltype(made) {
      owner = serve();
      if (owner == nullptr) return Error::invalid("allocate", "the context has ended");
      return owner->allocate(size, grow_hint, pressure);
    };
    reclaim_.retry(device, size, pressure, DeviceReclaim::Compacts::Here,
                   DeviceReclaim::Lease::Awaited, again(made, attempt));
    if (owner == nullptr) return std::nullopt;
  }
  if (!made.ok()) return refuse(made.error(), size, device, pressure);
  held_.add(**made, {.asked = size,
                     .owner = owner,
                     .served = ContextMemory::served_as(size),
                     .device = static_cast<std::int16_t>(device.ordinal())});
  *address = (*made)->address();
  if (device.budget().held_bytes() > held_before) reclaim_.bound_growth(device);
  return CUDA_SUCCESS;
}

// Rows begin at multiples of 512 bytes, as the driver's do.
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

template <class Serve>
Answer Memory::allocate_from(const Serve& serve, CUdeviceptr* address, Size size,
                             StreamState& stream) {
  PoolMemory* pool = serve();
  if (pool == nullptr || work_.has_lost_a_context()) return std::nullopt;
  if (contexts_.is_dead(stream.context)) return std::nullopt;
  DeviceMemory& device = pool->device();
  if (size > device.memory()) return refuse_allocation(device.ordinal());
  StreamClock::Operation operation{dependencies_.clock, stream,
                                   StreamClock::Operation::Kind::Allocation};
  MemoryPressure pressure{settings_.wait};
  const Size held_before = device.budget().held_bytes();
  auto made = pool->allocate(size, stream.id, pressure);
  // Another thread may have destroyed the device's current pool, so that it has another one now.
  while (!made.ok() && made.error().kind == ErrorKind::NotFound) {
    PoolMemory* const ended = std::exchange(pool, serve());
    if (pool == nullptr || pool == ended || &pool->device() != &device) return std::nullopt;
    made = pool->allocate(size, stream.id, pressure);
  }
  if (DeviceReclaim::may_help(made)) {
    // The pool may end while this thread waits for a lease, outside the barrier.
    const auto attempt = [&]() -> decltype(made) {
      pool = serve();
      const bool is_there = pool != nullptr && &pool->device() == &device;
      if (!is_there) return Error::invalid("allocate", "the pool has ended");
      return pool->allocate(size, stream.id, pressure);
    };
    reclaim_.retry(device, size, pressure, DeviceReclaim::Compacts::InAttempt,
                   DeviceReclaim::Lease::Awaited, again(made, attempt));
    if (pool == nullptr) return std::nullopt;
  }
  if (!made.ok()) return refuse(made.error(), size, device, pressure);
  if (PoolMemory::is_behind_others(**made)) {
    if (operation.granted_behind_others() != CUDA_SUCCESS) {
      // The work that still uses it is not ordered before this stream's.
      pool->take_back(**made, size, dependencies_.clock.ticket_of_all(stream.context));
      return std::nullopt;
    }
  }
  held_.add(**made, {.asked = size,
                     .owner = pool,
                     .served = Served::StreamOrdered,
                     .device = static_cast<std::int16_t>(device.ordinal())});
  *address = (*made)->address();
  if (device.budget().held_bytes() > held_before) reclaim_.bound_growth(device);
  return CUDA_SUCCESS;
}

Answer Memory::allocate_ordered(CUdeviceptr* address, Size size, StreamName stream) {
  if (address == nullptr || size == 0 || work_.is_capturing(stream)) return std::nullopt;
  StreamState* state = dependencies_.clock.table().find(stream);
  if (state == nullptr) return std::nullopt;
  return allocate_from([&] { return pools_.serve_current(state->device); }, address, size, *state);
}

Answer Memory::allocate_ordered(CUdeviceptr* address, Size size, CUmemoryPool handle,
                                StreamName stream) {
  if (address == nullptr || size == 0 || work_.is_capturing(stream)) return std::nullopt;
  StreamState* state = dependencies_.clock.table().find(stream);
  if (state == nullptr) return std::nullopt;
  return allocate_from([&] { return pools_.serve(handle); }, address, size, *state);
}

// The attempt asks the driver, so cuvmm's own unused memory makes way first, as in
// ChunkStore::take().
Result<void> Memory::take_natively(DeviceMemory& device, Size size, const NativeAttempt& attempt,
                                   const NativeAttempt& elsewhere) {
  MemoryPressure pressure{settings_.wait};
  const auto attempt_here = [&]() -> Result<void> {
    const MemoryInHand::Holder in_hand{device.store().in_hand()};
    Result<void> made = attempt();
    if (!DeviceReclaim::may_help(made)) return made;
    device.reclaim_own(made.error(), size);
    return attempt();
  };
  pressure.tried.add(ReclaimSteps::NewMemory);
  Result<void> made = attempt_here();
  // Do not wait for a size that can never fit, during a capture, or after a context was lost.
  const bool may_fit = size <= device.limit() && !work_.has_lost_a_context();
  const bool may_wait = may_fit && !dependencies_.captures.any();
  // Other threads may be faster each time.
  for (int attempts_left = 15; may_fit && !may_wait && attempts_left != 0; --attempts_left) {
    if (!DeviceReclaim::may_help(made) || !reclaim_.make_room()) break;
    made = attempt_here();
  }
  const auto retry = [&](DeviceReclaim::Lease lease) {
    if (!may_wait || !DeviceReclaim::may_help(made)) return;
    pressure.tried.add(ReclaimSteps::PendingWork);
    reclaim_.retry(device, size, pressure, DeviceReclaim::Compacts::Here, lease,
                   again(made, attempt_here));
  };
  const bool spills = elsewhere && device.store().spills();
  retry(spills ? DeviceReclaim::Lease::NotAwaited : DeviceReclaim::Lease::Awaited);
  if (spills && DeviceReclaim::may_help(made)) {
    pressure.tried.add(ReclaimSteps::Elsewhere);
    if (elsewhere().ok()) return {};
    if (device.budget().lessor() != nullptr) retry(DeviceReclaim::Lease::Awaited);
  }
  if (!DeviceReclaim::may_help(made)) return made;
  Error refused = made.error();
  pressure.tried.stand_in(refused);
  report_out_of_memory(refused, size, device, holdings_.mapped_free(device.ordinal()));
  refuse_allocation(device.ordinal());
  return refused;
}

void Memory::reclaim_for(DeviceMemory& device, Size missing,
                         const std::function<bool()>& still_lacks) {
  if (dependencies_.captures.any() || work_.has_lost_a_context()) return;
  MemoryPressure pressure{settings_.wait};
  reclaim_.retry(device, missing, pressure, DeviceReclaim::Compacts::Here,
                 DeviceReclaim::Lease::Awaited, still_lacks);
}

void Memory::count_native_refusal() {
  refuse_allocation(current_device(dependencies_.driver));
}

Result<Memory::Lent> Memory::lend(CUdeviceptr address, const Lending::Secret& fresh) {
  constexpr const char* doing = "lend memory";
  const auto found = held_.find_holder(address);
  if (!found || !found->facts.is_blocking()) {
    return Error::invalid(doing, "it is not blocking memory that cuvmm serves");
  }
  ContextMemory& owner = *found->facts.context_memory();
  if (owner.device().exportable() == Export::No) {
    return Error{.kind = ErrorKind::NotSupported,
                 .doing = doing,
                 .subject = "the device gives no memory to other processes"};
  }
  owner.pin(*found->allocation, pin::legacy_ipc);
  const Lending::Entry entry = lending_.lend(*found->allocation, found->facts, fresh);
  const Lent lent{found->facts.buffer_id, entry.secret};
  // Another thread may be freeing it, and may have looked before it was pinned.
  const auto still = held_.find_holder(address);
  if (still && still->facts.buffer_id == lent.id) return lent;
  if (entry.is_new) lending_.forget(lent.id);
  return Error::invalid(doing, "it is being freed");
}

MemoryInfo Memory::info(const MemoryInfo& of_the_driver) {
  const int ordinal = current_device(dependencies_.driver);
  const DeviceMemory* const memory = devices_.serve(ordinal);
  if (memory == nullptr) return of_the_driver;
  return memory->info(of_the_driver, holdings_.cached(*memory));
}

std::optional<MemoryInfo> Memory::info_of(const Lessor::Uuid& uuid, const MemoryInfo& seen) const {
  for (const DeviceMemory* const device : devices_.all()) {
    if (device->uuid() != uuid) continue;
    return device->limit() == unlimited ? seen : device->info(seen, holdings_.cached(*device));
  }
  return {};
}

}  // namespace cuvmm
