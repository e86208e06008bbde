// SPDX-License-Identifier: Apache-2.0
#include "engine/control.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "alloc/device_reclaim.hpp"
#include "base/at_exit.hpp"
#include "base/interprocess_memory.hpp"
#include "base/log.hpp"
#include "base/not_cancelled.hpp"
#include "base/start_thread.hpp"
#include "engine/control_service.hpp"
#include "engine/hook_bypass.hpp"

namespace cuvmm {
namespace {

constexpr Duration no_time{0};
constexpr Duration a_moment{2'000'000};
// For the upkeep thread, whose steps are short.
constexpr Duration upkeep_at_most{10'000'000};
constexpr Duration usual_rest{50'000};  // of that thread

// The Control whose threads must stay out of the driver once the process is ending.
std::atomic<Control*> running{nullptr};

}  // namespace

// Exclusive right to operate, for a thread that pauses or resumes, or for the upkeep thread.
class Control::Alone {
 public:
  // Waits up to for_request for a pause or resume in progress, and up to for_upkeep for upkeep.
  Alone(std::atomic<Busy>& busy, Busy as, Duration for_request, Duration for_upkeep) : busy_(busy) {
    const std::uint64_t began = now_us();
    for (;;) {
      Busy by = Busy::No;
      if ((is_mine_ = busy_.compare_exchange_strong(by, as))) return;
      const Duration patience = by == Busy::Request ? for_request : for_upkeep;
      if (now_us() - began >= static_cast<std::uint64_t>(patience.count())) return;
      rest_us(50);
    }
  }
  ~Alone() {
    if (is_mine_) busy_.store(Busy::No);
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  bool is_mine() const { return is_mine_; }

 private:
  std::atomic<Busy>& busy_;
  bool is_mine_ = false;
};

Result<PauseReport> Control::pause(Duration timeout, Strict strict, const PauseWatch& watch,
                                   Asker asker) {
  if (HookBypass::is_active()) return Error::invalid("pause", "from within a call");
  const auto is_ending = Error::invalid("pause", "the process is about to end");
  const ClosesSocketOfEndingProcess closes_socket;
  const Alone alone{busy_, Busy::Request, a_moment, upkeep_at_most};
  if (!alone.is_mine()) return Error::invalid("pause", "another pause or resume is under way");
  if (stays_out_.load()) return is_ending;
  if (placement_.is_stuck()) return Error::invalid("pause", "its memory is still being moved");
  const HookBypass bypass;
  start_looking_after_host();
  PauseWatch with_end = watch;
  with_end.is_wanted = [&] { return !stays_out_.load() && watch.is_wanted(); };
  // The service brings it back once it has room.
  if (asker == Asker::Service) with_end.undo = Partly::No;
  const bool was_paused = pauser_.is_paused();
  const auto paused = pauser_.pause(timeout, strict, with_end);
  if (paused.ok() && !was_paused) pauses_.note(*paused);
  if (paused.ok() && asker == Asker::Command) is_paused_by_command_.store(true);
  publish();
  if (!paused.ok() && stays_out_.load()) return is_ending;
  return paused;
}

Result<PauseReport> Control::resume(Partly partly, Asker asker, Duration within,
                                    const StillWanted& is_wanted) {
  if (HookBypass::is_active()) return Error::invalid("resume", "from within a call");
  const ClosesSocketOfEndingProcess closes_socket;
  const Alone alone{busy_, Busy::Request, a_moment, upkeep_at_most};
  if (!alone.is_mine()) return Error::invalid("resume", "another pause or resume is under way");
  if (presence() != share::Presence::OnDevices) {
    return Error::invalid("resume",
                          "it is off its devices; the command `cuvmm resume` restores it");
  }
  if (asker == Asker::Service && is_paused_by_command()) {
    return Error::invalid("resume", "a command has paused it");
  }
  const HookBypass bypass;
  const std::uint64_t until = now_ns() + in_ns(within);
  const bool was_paused = pauser_.is_paused();
  auto resumed = pauser_.resume(partly);
  while (DeviceReclaim::may_help(resumed) && now_ns() < until && is_wanted() &&
         pauser_.wait_for_room(until, is_wanted)) {
    resumed = pauser_.resume(partly);
  }
  if (resumed.ok()) {
    if (was_paused) resumes_.note(*resumed);
    is_paused_by_command_.store(false);
  }
  publish();
  return resumed;
}

void Control::return_ahead() {
  const Alone alone{busy_, Busy::Request, a_moment, upkeep_at_most};
  if (!alone.is_mine() || presence() != share::Presence::OnDevices) return;
  if (is_paused_by_command()) return;
  const HookBypass bypass;
  pauser_.return_ahead();
  publish();
}

void Control::leave_again() {
  const Alone alone{busy_, Busy::Request, a_moment, upkeep_at_most};
  if (!alone.is_mine() || presence() != share::Presence::OnDevices) return;
  const HookBypass bypass;
  pauser_.leave_again();
  publish();
}

Result<void> Control::leave_devices(const share::LeftMemory& expected) {
  constexpr const char* leaving = "leave the devices";
  const Alone alone{busy_, Busy::Request, a_moment, upkeep_at_most};
  if (!alone.is_mine()) return Error::invalid(leaving, "another pause or resume is under way");
  if (!pauser_.is_paused()) return Error::invalid(leaving, "it is not paused");
  if (presence() == share::Presence::OnDevices) {
    const ProgramChunks* const chunks = pauser_.program().chunks;
    if ((chunks != nullptr && chunks->are_shared()) || !InterprocessMemory::close()) {
      return Error{.kind = ErrorKind::NotSupported,
                   .doing = leaving,
                   .subject = "it shares memory with other processes"};
    }
    const HookBypass bypass;
    pauser_.leave_again();
    forget_ended_work_();
    set_left(expected);
  }
  presence_.store(share::Presence::Leaving);
  return {};
}

bool Control::has_left_devices(const share::LeftMemory& left) {
  share::Presence seen = share::Presence::Leaving;
  if (!presence_.compare_exchange_strong(seen, share::Presence::OffDevices)) return false;
  if (left != share::LeftMemory{}) set_left(left);
  return true;
}

void Control::set_left(const share::LeftMemory& left) {
  for (std::size_t i = 0; i < left.size(); ++i) left_[i].store(left[i]);
}

share::LeftMemory Control::left_memory() const {
  share::LeftMemory left{};
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = left_[i].load();
  return left;
}

share::ControlAnswer Control::agree(const share::ControlRequest& request) {
  share::ControlAnswer said;
  said.outcome = share::ControlOutcome::Done;
  const auto refuse = [&](const std::string& why) {
    said.outcome = share::ControlOutcome::Refused;
    said.say(why);
  };
  switch (request.what) {
    case share::ControlWhat::State:
      said.moved = paused_bytes();
      break;
    case share::ControlWhat::LeaveDevices:
      if (const auto granted = leave_devices(request.left); !granted.ok()) {
        refuse(granted.error().text());
      }
      break;
    case share::ControlWhat::HasLeft:
      if (!has_left_devices(request.left)) {
        refuse("another command has brought it back meanwhile");
      }
      break;
    case share::ControlWhat::HasReturned:
      InterprocessMemory::reopen();
      presence_.store(share::Presence::OnDevices);
      break;
    default:
      refuse("no such request");
  }
  said.is_paused = is_paused() ? 1 : 0;
  said.presence = presence();
  said.left = left_memory();
  return said;
}

Size Control::cold_bytes(int device) const {
  return cold_bytes_[static_cast<std::size_t>(device)].load();
}

Result<Size> Control::move_out_cold(DeviceMemory& device, Size wanted, Duration within) {
  const Alone alone{busy_, Busy::Request, a_moment, upkeep_at_most};
  if (!alone.is_mine() || stays_out_.load() || pauser_.is_paused() || placement_.is_stuck()) {
    return Size{0};
  }
  const HookBypass bypass;
  auto moved = placement_.move_out(device, wanted, within);
  publish();
  return moved;
}

Result<void> Control::make_exportable(CUdeviceptr address, Duration within) {
  return exchange([&] { return pauser_.program().chunks->is_exportable_from(address); },
                  [&] { return exchange_.make_exportable(address, within); }, within);
}

Result<void> Control::bring_in(const ChunkExchange::Places& spilled, Duration within) {
  return exchange([&]() -> Result<bool> { return spilled().empty(); },
                  [&] { return exchange_.bring_in(spilled, within); }, within);
}

const char* Control::change_memory(Duration within, const std::function<void()>& change) {
  const ProgramParts& program = pauser_.program();
  for (;;) {
    // A pause waits for all calls in progress, this thread's included, so step outside the barrier.
    // At the end of the scope, this thread waits for the pause to end, if there is one.
    const CallBarrier::OutsideBarrier stepped_out{program.calls};
    const Alone alone{busy_, Busy::Request, within, within};
    if (stays_out_.load() || program.calls.is_abandoned() || placement_.is_stuck()) {
      return "the process is about to end, or its memory is still being moved";
    }
    if (alone.is_mine() && !pauser_.is_paused()) {
      const HookBypass bypass;
      change();
      return nullptr;
    }
    if (!alone.is_mine() && !program.calls.is_shut()) return "another request takes too long";
  }
}

// Tries again if the program has mapped more in the meantime, or if memory has been spilled.
Result<void> Control::exchange(const std::function<Result<bool>()>& is_done,
                               const std::function<Result<void>()>& attempt, Duration within) {
  while (!TRY(is_done())) {
    Result<void> outcome;
    if (const char* const why = change_memory(within, [&] { outcome = attempt(); })) {
      return Error{
          .kind = ErrorKind::TimedOut, .doing = "exchange the program's chunks", .subject = why};
    }
    TRY(outcome);
  }
  return {};
}

bool Control::move_near(std::span<const AddressRange> ranges, Need need) {
  if (spilled().physical_in_use == 0 && pauser_.on_host_bytes() == 0) return true;
  if (!places_.load()) return false;  // VMM_SPILL_MOVE=off
  if (need == Need::Preferred && now_us() < no_move_near_until_us_.load()) return false;
  const Duration within{static_cast<Duration::rep>(longest_move_near_us(need))};
  const std::uint64_t began = now_us();
  bool are_near = false;
  const auto move_all = [&] {
    are_near = true;
    for (DeviceMemory* const device : memory_.devices().all()) {
      are_near &= placement_.move_near(*device, ranges, within);
    }
    publish();
  };
  static_cast<void>(change_memory(within, move_all));
  // Whatever held it up may do so again for the next graph.
  const auto took = Duration{static_cast<Duration::rep>(now_us() - began)};
  if (!are_near && took >= within) rest_from_moving_near();
  return are_near;
}

std::uint64_t Control::longest_move_near_us(Need need) {
  const auto longest = static_cast<std::uint64_t>(exchanges_within.count());
  return need == Need::Required ? longest : longest / 10;
}

void Control::rest_from_moving_near() {
  constexpr std::uint64_t rest_us = 10'000'000;
  no_move_near_until_us_.store(now_us() + rest_us);
}

bool Control::has_spilled() const {
  const auto& devices = memory_.devices().all();
  return pauser_.has_left_on_host() ||
         std::any_of(devices.begin(), devices.end(),
                     [](const DeviceMemory* device) { return device->store().has_spilled(); });
}

ChunkCounters Control::spilled() const {
  ChunkCounters sum;
  for (const DeviceMemory* device : memory_.devices().all()) {
    const ChunkCounters one = device->store().spilled();
    sum.physical_in_use += one.physical_in_use;
    sum.physical_free += one.physical_free;
    sum.physical_unreleased += one.physical_unreleased;
  }
  return sum;
}

Size Control::ahead_bytes() const {
  if (ahead_.is_none()) return 0;
  Size bytes = 0;
  for (const DeviceMemory* device : memory_.devices().all()) {
    bytes = std::max(bytes, ahead_.of(device->memory()));
  }
  return bytes;
}

void Control::place() {
  bool notes = false;
  uses_.begin_next_moment();
  for (DeviceMemory* device : memory_.devices().all()) {
    notes |= placement_.step(*device, now_ns()) == Placement::Attention::Uses;
  }
  LastUses::watch(notes ? &uses_ : nullptr);
}

// Tries less often if each attempt takes long. Also in an ending process, whose exit may wait.
Duration Control::resume_after_failure() {
  constexpr Duration longest{5'000'000};
  if (presence() != share::Presence::OnDevices) return usual_rest;
  if (pauser_.program().calls.is_abandoned()) return longest;
  const HookBypass bypass;
  const std::uint64_t began = now_us();
  const auto resumed = pauser_.resume(Partly::Yes);
  if (resumed.ok()) {
    resumes_.note(*resumed);
    CUVMM_LOG(Info, "the program continues after a pause that failed");
  }
  publish();
  const Duration took{now_us() - began};
  return std::clamp(10 * took, usual_rest, longest);
}

// Returns whether it has more to do.
bool Control::look_after_host() {
  const EndingContexts::Use contexts{ending_contexts_};
  if (!contexts.is_granted()) return false;
  bool has_more = pauser_.look_after_stock(ahead_bytes(), idle_);
  for (DeviceMemory* device : memory_.devices().all()) {
    const Size mapped = memory_.holdings().spilled_free(device->ordinal());
    has_more |= spill_ahead_.step(*device, mapped, now_ns());
  }
  return has_more;
}

Duration Control::run_upkeep() {
  constexpr Duration shortest{100};
  constexpr Duration a_moment_of_use{100'000};
  const ClosesSocketOfEndingProcess closes_socket;
  const Alone alone{busy_, Busy::Upkeep, no_time, no_time};
  if (alone.is_mine() && pauser_.is_left_paused()) return resume_after_failure();
  if (!alone.is_mine() || stays_out_.load()) return usual_rest;
  const HookBypass bypass;
  const std::uint64_t began = now_us();
  if (pauser_.is_paused()) {
    const bool may_call = presence() == share::Presence::OnDevices;
    const bool has_more = may_call && pauser_.pin_more();
    publish();
    return has_more ? shortest : usual_rest;
  }
  const bool has_more = look_after_host();
  // While pinning, the driver holds a lock that the program's calls need too, so rest for as long
  // as this step took.
  const Duration took{now_us() - began};
  const Duration rest = has_more ? std::clamp(took, shortest, usual_rest) : usual_rest;
  if (places_.load() && now_us() >= next_placing_us_) {
    place();
    next_placing_us_ = now_us() + static_cast<std::uint64_t>(a_moment_of_use.count());
  }
  publish();
  return rest;
}

void Control::publish() {
  is_paused_.store(pauser_.is_paused() && !pauser_.program().calls.is_abandoned());
  paused_bytes_.store(pauser_.paused_bytes());
  stayed_bytes_.store(pauser_.is_paused() ? pauser_.stayed_bytes() : 0);
  ready_bytes_.store(pauser_.ready_bytes());
  for (const DeviceMemory* device : memory_.devices().all()) {
    cold_bytes_[static_cast<std::size_t>(device->ordinal())].store(placement_.cold(*device));
  }
}

void* Control::run_upkeep_thread(void* control) {
  ::pthread_setname_np(::pthread_self(), "cuvmm-host");
  for (;;) {
    const Duration rest = static_cast<Control*>(control)->run_upkeep();
    ::usleep(static_cast<useconds_t>(rest.count()));
  }
}

void Control::shut_down() {
  refuse_pauses();
  constexpr Duration a_second{1'000'000};
  const Alone what_is_under_way_is_over{busy_, Busy::Request, a_second, a_second};
}

void Control::shut_down_running() {
  Control* const control = running.load();
  if (control != nullptr && control->process_.load() == ::getpid()) control->shut_down();
}

void Control::expect_pauses() {
  shut_down_at_exit();
  if (!ahead_.is_none()) start_looking_after_host();
}

void Control::shut_down_at_exit() {
  process_.store(::getpid());
  running.store(this);
  static constinit AtExit shuts_down{&Control::shut_down_running};
  shuts_down.ensure();
}

void Control::start_looking_after_host() {
  if (looks_after_host_.exchange(true)) return;
  shut_down_at_exit();
  if (start_detached_thread(&Control::run_upkeep_thread, this) != 0) {
    CUVMM_LOG(Warning, "cannot start the thread that releases pinned memory; it stays pinned");
  }
}

}  // namespace cuvmm
