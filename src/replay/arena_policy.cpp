// SPDX-License-Identifier: Apache-2.0
#include "replay/arena_policy.hpp"

namespace cuvmm::replay {
namespace {

constexpr const char* create_call = "cuMemCreate";
constexpr Size addresses_over_memory = 8;

// As programs are served: small stream-ordered blocks apart, and blocking ones that a window would
// be too much for.
constexpr Size smallest_large = 1 * MiB;
constexpr Size smallest_window = 64 * KiB;

}  // namespace

TraceQuiet::~TraceQuiet() {
  if (stream_ != nullptr) simulation_.driver().cuStreamDestroy(stream_);
}

bool TraceQuiet::begin(std::uint64_t) {
  const Driver& driver = simulation_.driver();
  return stream_ != nullptr ||
         driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
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
  MemorySettings memory{.grow = settings.grow};
  if (settings.limit != unlimited) memory.limit = SizeLimit::of_bytes(settings.limit);
  device_ = TRY(DeviceMemory::create(driver, 0, memory));
  const AccessSet access = AccessSet::of(device_->ordinal());

  ArenaSettings arena{.device = device_->ordinal(),
                      .granule = device_->granule(),
                      .reserve = addresses_over_memory * device_->memory(),
                      .access = access,
                      .grow = settings.grow,
                      .device_memory = device_->memory(),
                      .exportable = device_->exportable()};
  if (settings.chunk != 0) {
    arena.smallest_chunk = settings.chunk;
    arena.chunks.largest = settings.chunk;
  }
  large_ = TRY(Arena::create(driver, device_->store(), order_, arena));
  small_ = TRY(Arena::create(driver, device_->store(), order_, arena));
  small_blocking_ = TRY(Arena::create(driver, device_->store(), order_, arena));
  windows_ = TRY(Windows::create(driver, device_->store(), order_,
                                 {.device = device_->ordinal(),
                                  .granule = device_->granule(),
                                  .device_memory = device_->memory(),
                                  .access = access,
                                  .exportable = device_->exportable(),
                                  .quiet = &quiet_}));
  return {};
}

Result<ArenaPolicy::Held> ArenaPolicy::place(const ReplayEvent& event) {
  const bool is_blocking = event.kind == Kind::Blocking;
  if (is_blocking && event.size >= smallest_window) {
    return Held{.window = TRY(windows_->allocate(event.size))};
  }
  Arena* arena = is_blocking                   ? small_blocking_.get()
                 : event.size < smallest_large ? small_.get()
                                               : large_.get();
  const StreamId stream = is_blocking ? no_stream : event.stream;
  return Held{.arena = arena, .block = TRY(arena->allocate(event.size, stream))};
}

Result<void> ArenaPolicy::allocate(const ReplayEvent& event) {
  used_[event.block] = TRY(place(event));
  return {};
}

Result<void> ArenaPolicy::release(const ReplayEvent& event) {
  const auto found = used_.find(event.block);
  if (found == used_.end()) return Error{.kind = ErrorKind::NotFound, .doing = "free"};
  const Held held = found->second;
  used_.erase(found);
  if (held.window != nullptr) {
    windows_->free(*held.window);
  } else if (event.kind == Kind::Blocking) {
    held.arena->free(*held.block, {});
  } else {
    held.arena->free(*held.block, {.stream = event.stream, .tick = ++last_tick_});
  }
  return {};
}

PolicyCounters ArenaPolicy::counters() const {
  PolicyCounters counters{.physical_peak_bytes = simulation_.physical_peak(),
                          .creates = simulation_.calls(create_call) - creates_before_,
                          .compacted_blocks = windows_->counters().compacted_blocks,
                          .modelled_us = simulation_.modelled_us()};
  for (const Arena* arena : {large_.get(), small_.get(), small_blocking_.get()}) {
    counters.moves += arena->counters().moved_chunks;
  }
  return counters;
}

}  // namespace cuvmm::replay
