// SPDX-License-Identifier: Apache-2.0
#include "replay/arena_policy.hpp"

namespace cuvmm::replay {
namespace {

constexpr const char* create_call = "cuMemCreate";

}  // namespace

bool TraceQuiescence::begin(std::uint64_t) {
  if (stream_ == nullptr) stream_ = std::make_shared<CopyStream>(simulation_.driver());
  return true;
}

bool TraceCompactor::make_room(Size missing, StreamId /*asker*/, std::uint64_t until) {
  if (pool_->could_share(missing) < missing || !quiescence_.begin(until)) return false;
  const Result<Size> freed = pool_->share(missing, quiescence_.copy_by());
  quiescence_.end();
  return freed.ok() && *freed != 0;
}

Result<std::unique_ptr<Policy>> ArenaPolicy::create(const Simulation& simulation,
                                                    const Settings& settings) {
  std::unique_ptr<ArenaPolicy> made{new ArenaPolicy{simulation}};
  TRY(made->make_parts(settings));
  made->creates_before_ = simulation.calls(create_call);
  return {std::move(made)};
}

Result<void> ArenaPolicy::make_parts(const Settings& settings) {
  const Driver& driver = simulation_.driver();
  MemorySettings memory{
      .grow = settings.grow, .compact = settings.compact, .chunk = settings.chunk};
  if (settings.limit != unlimited) memory.limit = SizeLimit::of_bytes(settings.limit);
  CUcontext context = nullptr;
  TRY(driver.check(driver.cuCtxGetCurrent(&context), "find the simulated context"));
  device_ = TRY(DeviceMemory::create(driver, 0, memory));
  // The handle of the pool is irrelevant: nothing asks the driver for its memory.
  pool_ = TRY(PoolMemory::create(driver, *device_, order_, nullptr,
                                 settings.compact != Compact::Off ? &compactor_ : nullptr));
  compactor_.serve(*pool_);
  context_ = TRY(ContextMemory::create(driver, *device_, order_, context,
                                       AccessSet::of(device_->ordinal()), quiescence_));
  return {};
}

Result<void> ArenaPolicy::allocate(const ReplayEvent& event) {
  const bool is_blocking = event.kind == Kind::Blocking;
  MemoryPressure pressure{device_->settings().wait};
  Allocation* allocation = is_blocking ? TRY(context_->allocate(event.size, {}, pressure))
                                       : TRY(pool_->allocate(event.size, event.stream, pressure));
  allocation->hold(
      {.asked = event.size,
       .buffer_id = event.block + std::uint64_t{1},
       .owner = is_blocking ? AllocationOwner{context_.get()} : pool_.get(),
       .served = is_blocking ? ContextMemory::served_as(event.size) : Served::StreamOrdered,
       .device = 0});
  used_[event.block] = allocation;
  return {};
}

Result<void> ArenaPolicy::release(const ReplayEvent& event) {
  const auto found = used_.find(event.block);
  if (found == used_.end()) return Error{.kind = ErrorKind::NotFound, .doing = "free"};
  Allocation& allocation = *found->second;
  used_.erase(found);
  const auto facts = allocation.facts();
  if (!facts || !allocation.try_release(*facts)) {
    return Error{.kind = ErrorKind::NotFound, .doing = "free"};
  }
  if (event.kind == Kind::Blocking) {
    context_->free_after(allocation, FreeTicket{});  // no work is pending
  } else {
    pool_->free(allocation, {.stream = event.stream, .tick = ++last_tick_});
  }
  return {};
}

PolicyCounters ArenaPolicy::counters() const {
  return {.physical_peak_bytes = simulation_.physical_peak(),
          .creates = simulation_.calls(create_call) - creates_before_,
          .moves = pool_->moved_chunks(),
          .compacted_blocks = context_->compacted_blocks() + pool_->compacted_granules(),
          .modelled_us = simulation_.modelled_us()};
}

}  // namespace cuvmm::replay
