// SPDX-License-Identifier: Apache-2.0
#include "spill/pause.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/host_memory.hpp"
#include "base/log.hpp"
#include "base/stopwatch.hpp"
#include "driver/current_context.hpp"
#include "driver/device_attribute.hpp"
#include "trace/record_event.hpp"
#include "vmm/available_host_budget.hpp"

namespace cuvmm {
namespace {

constexpr const char* pausing = "pause";
constexpr const char* resuming = "resume";

std::uint64_t us_since(std::uint64_t began) {
  return (now_ns() - began) / 1000;
}

std::uint64_t deadline(Duration timeout) {
  return now_ns() + static_cast<std::uint64_t>(std::chrono::nanoseconds(timeout).count());
}

// While it lives, the budgets may hold as much as before the pause.
class ExceedAgain {
 public:
  explicit ExceedAgain(const std::vector<std::pair<LocalBudget*, Size>>& held) : held_(held) {
    for (const auto& [budget, bytes] : held_) {
      budget->let_exceed(bytes - std::min(bytes, budget->limit()));
    }
  }
  ~ExceedAgain() {
    for (const auto& [budget, bytes] : held_) budget->let_exceed(0);
  }
  ExceedAgain(const ExceedAgain&) = delete;
  ExceedAgain& operator=(const ExceedAgain&) = delete;

 private:
  const std::vector<std::pair<LocalBudget*, Size>>& held_;
};

Error refused(ErrorKind kind, const char* doing, const char* why, Size asked = 0) {
  return {.kind = kind, .doing = doing, .subject = why, .asked = asked};
}

}  // namespace

Pauser::~Pauser() = default;

Size Pauser::away_bytes() const {
  Size bytes = 0;
  for (const auto& removal : removals_) bytes += removal->bytes();
  return bytes;
}

// An upper bound: more than will leave if other processes hold some of it.
Size Pauser::expected_bytes() const {
  Size bytes = on_host_bytes();
  for (const DeviceMemory* device : program_.memory.devices().all()) {
    bytes += device->chunk_counters().physical_in_use;
  }
  if (program_.chunks != nullptr) bytes += program_.chunks->bytes_on_devices();
  return bytes;
}

// cuvmm need not serve a device for the program to have its own chunks there.
AccessSet Pauser::devices() const {
  AccessSet devices;
  if (program_.chunks != nullptr) devices = program_.chunks->devices();
  for (const DeviceMemory* device : program_.memory.devices().all()) {
    devices = devices.with(device->ordinal());
  }
  return devices;
}

int Pauser::first_device() const {
  const AccessSet all = devices();
  for (int ordinal = 0; ordinal < AccessSet::most_devices; ++ordinal) {
    if (all.of_device(ordinal) != Access::None) return ordinal;
  }
  return -1;
}

// For calls that any context will do for. A device that is served need not have one: memory may be
// spilled to a device that the program does not use.
CUcontext Pauser::any_context() const {
  const AccessSet all = devices();
  for (int ordinal = 0; ordinal < AccessSet::most_devices; ++ordinal) {
    if (all.of_device(ordinal) == Access::None) continue;
    if (const CUcontext context = program_.memory.contexts().any_on(ordinal)) return context;
  }
  return nullptr;
}

void Pauser::find_host() {
  if (has_host_) return;
  const int ordinal = first_device();
  if (ordinal < 0) return;
  const auto attribute = [&](CUdevice_attribute which, int otherwise) {
    return device_attribute_or(otherwise, program_.driver, which, ordinal);
  };
  const int node = attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1);
  stock_.be_near(node);
  node_ = std::max(node, 0);
  can_map_host_ =
      attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0) != 0 &&
      host_
          .serve(Location::host(node_),
                 std::make_shared<AvailableHostBudget>(program_.memory.host_budget()))
          .ok();
  has_host_ = true;
}

Result<void> Pauser::check_room_on_host(Size bytes) const {
  const Size most = stock_.touched_bytes() + beyond_left_to_the_host(available_host_memory());
  if (bytes <= most) return {};
  Error error = refused(ErrorKind::OutOfMemory, pausing, "the host has not enough memory", bytes);
  error.available = most;
  return error;
}

void Pauser::note_what_is_held() {
  held_before_.clear();
  for (DeviceMemory* const device : program_.memory.devices().all()) {
    held_before_.emplace_back(&device->budget(), device->budget().held_bytes());
  }
}

void Pauser::list_what_leaves(PauseReport& report) {
  Size begin = 0;
  const auto served = program_.memory.devices().all();
  const AccessSet all = devices();
  for (int ordinal = 0; ordinal < AccessSet::most_devices; ++ordinal) {
    if (all.of_device(ordinal) == Access::None) continue;
    EvictionSet evicted{.wants = [this](const Chunk& chunk) {
      // Memory spilled to a neighbouring device leaves that device too.
      return chunk.location().is_device() || ours_.contains(chunk.handle());
    }};
    const auto found = std::find_if(served.begin(), served.end(),
                                    [&](const auto* one) { return one->ordinal() == ordinal; });
    DeviceMemory* const device = found != served.end() ? *found : nullptr;
    if (device != nullptr) program_.memory.holdings().begin_eviction(ordinal, evicted);
    for (EvictedChunk& one : evicted.chunks) {
      // The last resume brought it back only as far as the host.
      if (device == nullptr || !one.home.is_host()) continue;
      one.home = device->location();
      one.exportable = device->exportable();
    }
    const CUcontext context = program_.memory.contexts().any_on(ordinal);
    list_programs_chunks(ordinal, context, evicted);
    removals_.push_back(std::make_unique<DeviceSwapOut>(program_.driver, device, context,
                                                        std::move(evicted), begin));
    begin += removals_.back()->bytes();
    report.stayed += removals_.back()->stayed();
    if (removals_.back()->stayed() != 0) report.why = removals_.back()->why();
  }
}

void Pauser::list_programs_chunks(int ordinal, CUcontext context, EvictionSet& evicted) {
  if (program_.chunks == nullptr || program_.chunks->is_empty()) return;
  // Chunks that were spilled to the host need not leave.
  const auto wants = [this](const ProgramChunk& chunk) {
    return !chunk.moved || chunk.moved->location().is_device() ||
           ours_.contains(chunk.moved->handle());
  };
  auto programs =
      std::make_unique<ProgramEviction>(program_.driver, *program_.chunks, ordinal, wants);
  if (context != nullptr) {
    programs->begin_eviction(evicted);
    programs_.push_back(std::move(programs));
    return;
  }
  for (const auto& chunk : program_.chunks->chunks_on(ordinal)) {
    evicted.exclude(chunk->size, Location::device(ordinal), "its device has no context");
  }
}

void Pauser::end_eviction() {
  for (const auto& removal : removals_) removal->end();
  removals_.clear();
  programs_.clear();
  is_paused_ = has_failed_ = false;
  if (on_host_bytes() == 0) trim_host(0);
}

// Releases host chunks that back no memory any longer. True if any are left.
bool Pauser::trim_host(Size down_to) {
  if (!can_map_host_) return false;
  host_.trim(Location::host(node_), down_to);
  const ChunkCounters counters = host_.counters(Location::host(node_));
  if (counters.physical_in_use == 0) ours_.clear();
  return counters.physical_free != 0;
}

// For less data than the ring holds, pinning it is not worthwhile. If the ring cannot be pinned,
// the stock is pinned instead.
HostSide Pauser::host_side() {
  if (away_bytes() <= ring_size_ || stock_.pinned_bytes() >= away_bytes()) return {stock_};
  if (!ring_.provide(ring_size_).ok()) return {stock_};
  const HostStock::Part ring = ring_.pinned_at(0);
  if (!ring.is_pinned) return {stock_};
  return {stock_, {ring.bytes, ring_size_}};
}

Result<void> Pauser::take_all_out(PauseReport& report, Strict strict, const PauseWatch& watch) {
  note_what_is_held();
  list_what_leaves(report);
  if (strict == Strict::Yes && report.stayed != 0) {
    return refused(ErrorKind::NotSupported, pausing, report.why, report.stayed);
  }
  TRY(check_room_on_host(away_bytes()));
  if (const InContext in_context{program_.driver, any_context()}; in_context.ok()) {
    stock_.look_again();
    ring_.look_again();
  }
  TRY(stock_.provide(away_bytes()));
  for (const auto& removal : removals_) {
    removal->release_cache();
    if (removal->bytes() == 0) continue;
    const InContext in_context{program_.driver, removal->context()};
    if (!in_context.ok()) return refused(ErrorKind::DriverFailed, pausing, "no context for copies");
    const HostSide host = [&] {
      const Stopwatch getting{report.times.host_us};
      return host_side();
    }();
    TRY(removal->take_out(host, report.times, watch.is_wanted, watch.has_released));
    report.moved += removal->bytes();
  }
  return {};
}

// All devices, or none: two programs that each kept the memory of one device would wait for each
// other for ever.
Result<void> Pauser::put_all_back(PauseReport& report, Partly partly) {
  const Size moved_before = report.moved;
  Result<void> outcome = put_each_back(report, partly);
  if (outcome.ok() || program_.calls.is_abandoned()) return outcome;
  report.moved = moved_before;
  for (const auto& removal : removals_) {
    const InContext in_context{program_.driver, removal->context()};
    if (in_context.ok() && removal->is_back()) removal->leave_again();
  }
  return outcome;
}

// Stops at the first failure. If the program has shut down the driver, because it is exiting, its
// memory is gone, and no call waits for that any longer.
Result<void> Pauser::put_each_back(PauseReport& report, Partly partly) {
  DeviceSwapOut::Instead instead;
  if (partly == Partly::Yes && can_map_host_) {
    instead = [&](const EvictedChunk& one) -> Result<ChunkRef> {
      // Exportable as on the device, if host memory can be: the program may ask for an IPC handle.
      ChunkRef chunk =
          TRY(host_.take_even_if_unexportable({one.size, Location::host(node_), one.exportable}));
      ours_.insert(chunk->handle());
      has_left_on_host_.store(true, std::memory_order_relaxed);
      return chunk;
    };
  }
  const ExceedAgain allowed{held_before_};
  for (const auto& removal : removals_) {
    if (!removal->has_begun()) continue;
    const InContext in_context{program_.driver, removal->context()};
    if (in_context.answer() == CUDA_ERROR_DEINITIALIZED) {
      program_.calls.abandon(in_context.answer());
      return refused(ErrorKind::NotSupported, resuming, "the driver has been shut down");
    }
    TRY(program_.driver.check(in_context.answer(), resuming));
    TRY(removal->put_back(host_side(), instead, report.times));
    report.moved += removal->bytes();
  }
  return {};
}

// Tries again, since a refusal by the driver may be transient. If another program has taken the
// memory that this one had released, this one may continue with memory of the host.
Result<void> Pauser::put_back_after_failure(Partly partly) {
  PauseReport back;
  if (put_all_back(back, Partly::No).ok()) return {};
  return put_all_back(back, partly);
}

Result<PauseReport> Pauser::pause(Duration timeout, Strict strict, const PauseWatch& watch) {
  if (has_failed_) TRY(resume(Partly::Yes));
  if (is_paused_) return paused_;
  const std::uint64_t began = now_ns();
  const std::uint64_t until = deadline(timeout);
  if (const char* const why = why_not_quiescible(program_)) {
    return refused(ErrorKind::NotSupported, pausing, why);
  }
  find_host();
  PauseReport report;
  // The stock is kept for the next pause, whether or not this one succeeds.
  stock_used_at_ = now_ns();
  const std::uint64_t held = now_ns();
  TRY(quiesce(program_, pausing, until, until, watch.is_wanted));
  if (!watch.may_move()) {
    end_quiescence(program_);
    return refused(ErrorKind::TimedOut, pausing, "it was cancelled");
  }
  report.times.drain_us = us_since(held);
  const RelaxedCapture relaxed{program_.driver};
  const Result<void> taken = take_all_out(report, strict, watch);
  stock_used_at_ = now_ns();
  is_paused_ = true;
  if (!taken.ok()) {
    paused_ = report;
    if (const auto returned = put_back_after_failure(watch.undo); !returned.ok()) {
      has_failed_ = true;
      undo_ = watch.undo;
      CUVMM_LOG(Warning,
                "a pause failed, and evicted memory cannot be restored yet (%s): the process stays "
                "paused",
                returned.error().text().c_str());
      return taken.error();
    }
    end_eviction();
    end_quiescence(program_);
    return taken.error();
  }
  report.took_us = us_since(began);
  report.held_us = us_since(held);
  paused_ = report;
  CUVMM_TRACE(.event = TraceEvent::Pause, .size = report.moved, .other = report.took_us * 1000);
  return report;
}

Result<PauseReport> Pauser::resume(Partly partly) {
  if (!is_paused_) return PauseReport{};
  const std::uint64_t began = now_ns();
  const RelaxedCapture relaxed{program_.driver};
  PauseReport report = ahead_;
  Result<void> returned = put_all_back(report, partly);
  // Retries once, since a refusal by the driver may be transient.
  const bool may_retry = !program_.calls.is_abandoned();
  if (!returned.ok() && returned.error().kind != ErrorKind::OutOfMemory && may_retry) {
    returned = put_all_back(report, partly);
  }
  stock_used_at_ = now_ns();
  if (!returned.ok()) {
    Error error = returned.error();
    error.doing = resuming;
    if (const auto answer = static_cast<CUresult>(error.driver_code); is_sticky(answer)) {
      program_.calls.abandon(answer);
      error.subject = "the device has failed and its contents are lost; calls return its error";
      CUVMM_LOG(Warning, "%s", error.text().c_str());
    }
    if (error.kind == ErrorKind::OutOfMemory) {
      error.subject = error.driver_code != 0
                          ? "the device has no room; the process stays paused"
                          : "a limit or a lease leaves no room; the process stays paused";
      error.asked = away_bytes();
    }
    return error;
  }
  end_eviction();
  ahead_ = {};
  end_quiescence(program_);
  report.took_us += us_since(began);
  report.held_us = report.took_us;
  report.stayed = on_host_bytes();
  if (report.stayed != 0) report.why = "the device has no room for it";
  CUVMM_TRACE(.event = TraceEvent::Resume, .size = report.moved, .other = report.took_us * 1000);
  return report;
}

bool Pauser::wait_for_room(std::uint64_t until, const StillWanted& is_wanted) {
  bool has_come = false;
  for (const auto& removal : removals_) has_come |= removal->wait_for_room(until, is_wanted);
  return has_come;
}

void Pauser::return_ahead() {
  if (!is_paused_) return;
  const RelaxedCapture relaxed{program_.driver};
  const ExceedAgain allowed{held_before_};
  const Stopwatch returning{ahead_.took_us};
  for (const auto& removal : removals_) {
    const InContext in_context{program_.driver, removal->context()};
    if (in_context.ok()) removal->return_ahead(host_side(), ahead_.times);
  }
  stock_used_at_ = now_ns();
}

void Pauser::leave_again() {
  if (!is_paused_) return;
  const RelaxedCapture relaxed{program_.driver};
  for (const auto& removal : removals_) {
    const InContext in_context{program_.driver, removal->context()};
    if (in_context.ok()) removal->leave_again();
  }
}

bool Pauser::look_after_stock(Size ahead, Duration idle) {
  if (is_paused_) return false;
  constexpr Size step = 128 * MiB;
  const bool is_idle = now_ns() > stock_used_at_ + static_cast<std::uint64_t>(idle.count()) * 1000;
  const Size unused_on_host =
      can_map_host_ ? host_.counters(Location::host(node_)).physical_free : 0;
  if (is_idle && unused_on_host != 0) {
    return trim_host(unused_on_host - std::min(unused_on_host, step));
  }
  if (ahead == 0 && stock_.bytes() == 0) return false;
  const Size wanted = std::min(ahead, expected_bytes());
  const RelaxedCapture relaxed{program_.driver};
  const InContext in_context{program_.driver, any_context()};
  if (!in_context.ok()) return false;
  if (stock_.bytes() < wanted) {
    find_host();
    const Size had = stock_.bytes();
    const Size next = std::min(wanted, had + step);
    if (!check_room_on_host(next + step).ok() || !stock_.provide(next).ok()) return false;
    for (Size reached = had; reached < next;) reached += stock_.pinned_at(reached).size;
    return stock_.bytes() < wanted;
  }
  if (stock_.bytes() < wanted + 2 * step && !(wanted == 0 && stock_.bytes() != 0)) return false;
  if (!is_idle) return false;
  (void)stock_.give_back(std::max(wanted, stock_.bytes() > step ? stock_.bytes() - step : 0));
  if (stock_.bytes() == 0) (void)ring_.give_back(0);
  return stock_.bytes() > wanted;
}

bool Pauser::pin_more() {
  if (!is_paused_) return false;
  const RelaxedCapture relaxed{program_.driver};
  const InContext in_context{program_.driver, any_context()};
  return in_context.ok() && stock_.pin_next();
}

}  // namespace cuvmm
