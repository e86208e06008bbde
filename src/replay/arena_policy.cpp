// SPDX-License-Identifier: Apache-2.0
#include "replay/arena_policy.hpp"

namespace cuvmm::replay {
namespace {

constexpr const char* create_call = "cuMemCreate";
constexpr Size addresses_over_memory = 8;

}  // namespace

Result<std::unique_ptr<Policy>> ArenaPolicy::create(const Simulation& simulation,
                                                    const Settings& settings) {
  const Driver& driver = simulation.driver();
  std::unique_ptr<ArenaPolicy> made{new ArenaPolicy{simulation}};
  MemorySettings memory{.grow = settings.grow};
  if (settings.limit != unlimited) memory.limit = SizeLimit::of_bytes(settings.limit);
  made->device_ = TRY(DeviceMemory::create(driver, 0, memory));
  DeviceMemory& device = *made->device_;
  ArenaSettings arena{.device = device.ordinal(),
                      .granule = device.granule(),
                      .reserve = addresses_over_memory * device.memory(),
                      .access = AccessSet::of(device.ordinal()),
                      .grow = settings.grow,
                      .device_memory = device.memory(),
                      .exportable = device.exportable()};
  if (settings.chunk != 0) {
    arena.smallest_chunk = settings.chunk;
    arena.chunks.largest = settings.chunk;
  }
  made->large_ = TRY(Arena::create(driver, device.store(), made->order_, arena));
  made->small_ = TRY(Arena::create(driver, device.store(), made->order_, arena));
  made->creates_before_ = simulation.calls(create_call);
  return {std::move(made)};
}

Result<void> ArenaPolicy::allocate(const ReplayEvent& event) {
  used_[event.block] = TRY(arena_of(event.size).allocate(event.size, event.stream));
  return {};
}

Result<void> ArenaPolicy::free(const ReplayEvent& event) {
  const auto found = used_.find(event.block);
  if (found == used_.end()) return Error{.kind = ErrorKind::NotFound, .doing = "free"};
  Block& block = *found->second;
  used_.erase(found);
  arena_of(event.size).free(block, {.stream = event.stream, .tick = ++last_tick_});
  return {};
}

PolicyCounters ArenaPolicy::counters() const {
  return {.physical_peak_bytes = simulation_.physical_peak(),
          .creates = simulation_.calls(create_call) - creates_before_,
          .moves = large_->counters().moved_chunks + small_->counters().moved_chunks,
          .modelled_us = simulation_.modelled_us()};
}

}  // namespace cuvmm::replay
