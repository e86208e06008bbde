// SPDX-License-Identifier: Apache-2.0
#include "spill/pause.hpp"

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/undo.hpp"
#include "trace/record_event.hpp"

namespace cuvmm {
namespace {

constexpr const char* pausing = "pause";
constexpr const char* resuming = "resume";

// Others on the host need some too.
constexpr Size left_to_the_host = 512 * MiB;

// What changes while chunks are got is counted again.
constexpr int rounds_at_most = 4;

std::uint64_t us_since(std::uint64_t began) {
  return (now_ns() - began) / 1000;
}

std::uint64_t deadline(Duration timeout) {
  return now_ns() + static_cast<std::uint64_t>(std::chrono::nanoseconds(timeout).count());
}

}  // namespace

Relocation Pauser::relocation(Way way, Relocation::Do what) const {
  Relocation made;
  made.what = what;
  if (way == Way::Out) {
    made.free = Relocation::Free::IsLetGo;
    // What was spilled to a neighbour is to leave that one too.
    made.wants = [](const Chunk& chunk) { return chunk.location().is_device(); };
  } else {
    made.wants = [this](const Chunk& chunk) {
      return chunk.location().is_host() && ours_.contains(chunk.handle());
    };
  }
  return made;
}

Result<void> Pauser::find_host() {
  if (has_host_) return {};
  const auto devices = around_.memory.served_devices();
  if (devices.empty()) return {};
  const int ordinal = devices.front()->ordinal();
  int supported = 0;
  TRY(around_.driver.check(
      around_.driver.cuDeviceGetAttribute(
          &supported, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal),
      pausing));
  if (supported == 0) {
    return Error{.kind = ErrorKind::NotSupported,
                 .doing = pausing,
                 .subject = "the device cannot map memory of the host"};
  }
  int node = 0;
  const CUresult asked =
      around_.driver.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, ordinal);
  node_ = asked == CUDA_SUCCESS && node > 0 ? node : 0;
  TRY(host_.serve(Location::host(node_), std::make_shared<LocalBudget>()));
  has_host_ = true;
  return {};
}

Result<void> Pauser::check_room_on_host(Size bytes) const {
  const Size available = available_host_memory();
  const Size most = available > left_to_the_host ? available - left_to_the_host : 0;
  if (bytes <= most) return {};
  return Error{.kind = ErrorKind::OutOfMemory,
               .doing = pausing,
               .subject = "the host has not got so much",
               .asked = bytes,
               .available = most};
}

Result<void> Pauser::get_ready(Way way, DeviceMemory& device, Relocation& relocation) {
  const auto missing = std::exchange(relocation.missing, {});
  for (auto size = missing.rbegin(); size != missing.rend(); ++size) {
    for (std::size_t i = 0; i < size->second; ++i) {
      if (way == Way::Out) {
        ChunkRef chunk = TRY(host_.take({size->first, Location::host(node_), Export::No}));
        ours_.insert(chunk->handle());
        relocation.ready[size->first].push_back(std::move(chunk));
      } else {
        relocation.ready[size->first].push_back(
            TRY(device.store().take({size->first, device.location(), device.exportable()})));
      }
    }
  }
  return {};
}

// No new calls, and none that runs.
Result<void> Pauser::stop(std::uint64_t until) {
  around_.hold_calls();
  const auto refuse = [&](const char* why) {
    around_.let_calls_go();
    return Error{.kind = ErrorKind::TimedOut, .doing = pausing, .subject = why};
  };
  if (!around_.gate.close(until)) return refuse("a call did not return in time");
  if (around_.memory.wait_for_everything(until)) return {};
  around_.gate.open();
  return refuse("the work that runs was not done in time");
}

void Pauser::go_on() {
  around_.gate.open();
  around_.let_calls_go();
}

Result<void> Pauser::move_device(Way way, DeviceMemory& device, PauseReport& report) {
  Relocation moving = relocation(way, Relocation::Do::Move);
  if (const auto prepared = prepared_.find(device.ordinal()); prepared != prepared_.end()) {
    moving.ready = std::move(prepared->second.ready);
    prepared_.erase(prepared);
  }
  for (int round = 0; round < rounds_at_most; ++round) {
    moving.missing.clear();
    moving.stayed = 0;
    around_.memory.relocate(device.ordinal(), moving);
    if (moving.failure || moving.missing.empty()) break;
    const auto ready = get_ready(way, device, moving);
    if (ready.ok()) continue;
    // As much as there is room for.
    if (way == Way::Back) around_.memory.relocate(device.ordinal(), moving);
    if (!moving.failure) moving.failure = ready.error();
    break;
  }
  report.moved += moving.moved;
  report.stayed += moving.stayed;
  if (moving.stayed != 0) report.why = moving.why;
  moving.ready.clear();
  if (way == Way::Out) device.give_back_cached();
  if (moving.failure) return *moving.failure;
  return {};
}

// Pinned memory of the host that holds nothing.
void Pauser::forget_unused() {
  if (!has_host_) return;
  host_.trim(Location::host(node_), 0);
  if (paused_bytes() == 0) ours_.clear();
}

// Every device is tried; the first failure is what is said.
Result<void> Pauser::move_all(Way way, PauseReport& report) {
  Result<void> outcome;
  for (DeviceMemory* device : around_.memory.served_devices()) {
    const auto moved = move_device(way, *device, report);
    if (outcome.ok()) outcome = moved;
  }
  return outcome;
}

Result<PauseReport> Pauser::pause(Duration timeout, Strict strict) {
  if (is_paused_) return paused_;
  const std::uint64_t began = now_ns();
  const std::uint64_t until = deadline(timeout);
  TRY(find_host());
  const Undo forget{[this] {
    prepared_.clear();
    forget_unused();
  }};
  // While the program still runs: getting pinned memory of the host is what takes longest.
  PauseReport report;
  Size wanted = 0;
  for (DeviceMemory* device : around_.memory.served_devices()) {
    device->give_back_cached();
    Relocation counted = relocation(Way::Out, Relocation::Do::Count);
    around_.memory.relocate(device->ordinal(), counted);
    wanted += counted.missing_bytes();
    if (counted.stayed != 0 && strict == Strict::Yes) {
      return Error{.kind = ErrorKind::NotSupported,
                   .doing = pausing,
                   .subject = counted.why,
                   .asked = counted.stayed};
    }
    prepared_.emplace(device->ordinal(), std::move(counted));
  }
  TRY(check_room_on_host(wanted));
  for (DeviceMemory* device : around_.memory.served_devices()) {
    const auto prepared = prepared_.find(device->ordinal());
    if (prepared != prepared_.end()) TRY(get_ready(Way::Out, *device, prepared->second));
  }
  const std::uint64_t held = now_ns();
  TRY(stop(until));
  const auto moved = move_all(Way::Out, report);
  const bool refused = strict == Strict::Yes && report.stayed != 0;
  if (!moved.ok() || refused) {
    PauseReport back;
    const auto returned = move_all(Way::Back, back);
    if (!returned.ok()) {
      CUVMM_LOG(Warning, "a pause failed, and %s of memory stay on the host: %s",
                print_size(paused_bytes()).c_str(), returned.error().text().c_str());
    }
    go_on();
    if (!moved.ok()) return moved.error();
    return Error{.kind = ErrorKind::NotSupported,
                 .doing = pausing,
                 .subject = report.why,
                 .asked = report.stayed};
  }
  // The calls wait still; those that had passed them do no harm.
  around_.gate.open();
  is_paused_ = true;
  report.took_us = us_since(began);
  report.held_us = us_since(held);
  paused_ = report;
  CUVMM_TRACE(.event = TraceEvent::Pause, .size = report.moved, .other = report.took_us * 1000);
  return report;
}

Result<PauseReport> Pauser::resume(Duration timeout, Partly partly) {
  if (!is_paused_) return PauseReport{};
  const std::uint64_t began = now_ns();
  const std::uint64_t until = deadline(timeout);
  // Calls that had begun when it was paused may have given work since.
  const bool closed = around_.gate.close(until);
  if (!closed || !around_.memory.wait_for_everything(until)) {
    if (closed) around_.gate.open();
    return Error{.kind = ErrorKind::TimedOut,
                 .doing = resuming,
                 .subject = "the work that runs was not done in time"};
  }
  PauseReport report;
  auto moved = move_all(Way::Back, report);
  // A driver that refused once may not do so again.
  if (!moved.ok() && moved.error().kind != ErrorKind::OutOfMemory) {
    moved = move_all(Way::Back, report);
  }
  forget_unused();
  report.took_us = report.held_us = us_since(began);
  if (!moved.ok() && partly == Partly::No) {
    around_.gate.open();
    Error error = moved.error();
    error.doing = resuming;
    if (error.kind == ErrorKind::OutOfMemory)
      error.subject = "the device has no room; it is paused still";
    return error;
  }
  report.stayed = paused_bytes();
  if (report.stayed != 0) report.why = "the device has no room for it";
  is_paused_ = false;
  go_on();
  CUVMM_TRACE(.event = TraceEvent::Resume, .size = report.moved, .other = report.took_us * 1000);
  return report;
}

}  // namespace cuvmm
