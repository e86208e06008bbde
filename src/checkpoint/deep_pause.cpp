// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/deep_pause.hpp"

#include <algorithm>
#include <numeric>

#include "base/size.hpp"
#include "checkpoint/checkpoint_lock.hpp"

namespace cuvmm::checkpoint {
namespace {

using share::ControlAnswer;
using share::ControlOutcome;
using share::ControlWhat;
using share::LeftMemory;
using share::Presence;
using End = CheckpointEnd;

// For answers that take no time, and for another command at work on the same process.
constexpr Duration a_while{30'000'000};

// The program's answer, or the reason why there is none.
struct Told {
  std::optional<ControlAnswer> answer;  // if it did as it was told
  std::string why;
  bool is_refused = false;  // by the program itself
  bool is_paused = true;
};

Told tell(const AskProcess& ask, ControlWhat what, const LeftMemory& left = {}) {
  share::ControlRequest request;
  request.what = what;
  request.left = left;
  const auto answer = ask(request);
  if (!answer.ok()) return {.answer = {}, .why = answer.error().text()};
  if (answer->outcome != ControlOutcome::Done) {
    return {.answer = {},
            .why = answer->text.data(),
            .is_refused = true,
            .is_paused = answer->is_paused != 0};
  }
  return {.answer = *answer, .why = {}};
}

// Memory in use on a device.
struct MemoryInUse {
  Size of_process = 0;
  Size of_all = 0;
};
using InUse = std::array<MemoryInUse, std::tuple_size_v<LeftMemory>>;

InUse memory_in_use(const std::optional<observe::Nvml>& nvml, pid_t process) {
  InUse all{};
  for (std::uint32_t device = 0; nvml && device < all.size(); ++device) {
    const auto use = nvml->use(device);
    if (!use) break;
    const auto own = use->processes.find(process);
    all[device] = {.of_process = own != use->processes.end() ? own->second : 0,
                   .of_all = use->used};
  }
  return all;
}

// Computed before the checkpoint, because this process may die before it can measure what has left.
LeftMemory expected_to_leave(const InUse& before) {
  LeftMemory left{};
  for (std::size_t device = 0; device < left.size(); ++device) {
    left[device] = static_cast<std::uint32_t>(before[device].of_process / MiB);
  }
  return left;
}

// For a process that NVML does not list, as in some containers. Includes memory that other
// processes took or gave back meanwhile.
LeftMemory difference(const InUse& before, const InUse& after) {
  LeftMemory left{};
  for (std::size_t device = 0; device < left.size(); ++device) {
    const Size was = before[device].of_all;
    const Size is = after[device].of_all;
    left[device] = static_cast<std::uint32_t>((was > is ? was - is : 0) / MiB);
  }
  return left;
}

// A driver that runs out of memory during a restore may never restore the process (seen with 580),
// so this looks first. Empty if there is room, or if NVML does not say.
std::string why_no_room(const std::optional<observe::Nvml>& nvml, const LeftMemory& needed) {
  for (std::uint32_t device = 0; nvml && device < needed.size(); ++device) {
    if (needed[device] == 0) continue;
    const auto use = nvml->use(device);
    const Size bytes = needed[device] * MiB;
    const Size free = use && use->memory > use->used ? use->memory - use->used : 0;
    if (!use || bytes <= free) continue;
    return "device " + std::to_string(device) + " has no room: its contexts and modules need " +
           print_size(bytes) + ", " + print_size(free) + " are free";
  }
  return {};
}

DeepPauseOutcome unknown(const std::string& why) {
  return {.end = End::Unknown, .why = why, .times = {}, .left = {}};
}

DeepPauseOutcome stays(const AskProcess& ask, const std::string& why) {
  const Told told = tell(ask, ControlWhat::HasReturned);
  if (told.answer) return {.end = End::OnDevices, .why = why, .times = {}, .left = {}};
  return unknown(told.why);
}

// Holding the lock.
DeepPauseOutcome take_off(Libraries& libraries, pid_t process, ProcessCheckpoint::Begun begun,
                          Duration timeout, const AskProcess& ask) {
  auto& checkpoint = libraries.checkpoint();
  if (!checkpoint.ok()) {
    const End end = begun == ProcessCheckpoint::Begun::No ? End::OnDevices : End::Unknown;
    return {.end = end, .why = checkpoint.error().text(), .times = {}, .left = {}};
  }
  const auto& nvml = libraries.nvml();
  const InUse before = memory_in_use(nvml, process);
  const Told granted = tell(ask, ControlWhat::LeaveDevices, expected_to_leave(before));
  if (!granted.answer) {
    const bool is_untouched = granted.is_refused && begun == ProcessCheckpoint::Begun::No;
    if (!is_untouched) return unknown(granted.why);
    return {.end = End::OnDevices,
            .why = granted.why,
            .times = {},
            .left = {},
            .is_resumed = !granted.is_paused};
  }
  const auto outcome = checkpoint->take_off(begun, timeout);
  const std::string why = outcome.end == End::OffDevices ? "" : outcome.why.text();
  if (outcome.end == End::OnDevices) return stays(ask, why);
  DeepPauseOutcome done{.end = outcome.end, .why = why, .times = checkpoint->times(), .left = {}};
  if (done.end != End::OffDevices) return done;
  LeftMemory left = granted.answer->left;
  if (sum_of(left) == 0) left = difference(before, memory_in_use(nvml, process));
  done.left = left;
  const Told told = tell(ask, ControlWhat::HasLeft, left);
  if (told.answer) return done;
  // The process does not know that it is off its devices, so nobody would bring it back.
  const auto back = checkpoint->bring_back();
  return back.ok() ? stays(ask, told.why) : unknown(told.why);
}

}  // namespace

AskProcess by_control_socket(pid_t process) {
  return [process](const share::ControlRequest& request) {
    return share::tell(process, request, share::Deadline::after(a_while));
  };
}

Size sum_of(const LeftMemory& left) {
  return std::accumulate(left.begin(), left.end(), Size{0}) * MiB;
}

DeepPauseOutcome take_off_devices(Libraries& libraries, pid_t process, Duration timeout,
                                  const AskProcess& ask) {
  const auto lock = lock_for_checkpoint(process, share::Deadline::after(a_while));
  if (!lock.ok()) return unknown(lock.error().text());
  const Told seen = tell(ask, ControlWhat::State);
  if (!seen.answer) return unknown(seen.why);
  const bool is_first = seen.answer->presence == Presence::OnDevices;
  return take_off(libraries, process,
                  is_first ? ProcessCheckpoint::Begun::No : ProcessCheckpoint::Begun::ByAnother,
                  timeout, ask);
}

DeepReturnOutcome return_to_devices(pid_t process, const AskProcess& ask) {
  const auto failed = [](const std::string& why, End end = End::Unknown) {
    return DeepReturnOutcome{.end = end, .why = why, .times = {}};
  };
  const auto was_back = [] {
    return DeepReturnOutcome{.end = End::OnDevices, .why = {}, .times = {}};
  };
  const Told seen = tell(ask, ControlWhat::State);
  if (!seen.answer) return failed(seen.why);
  if (seen.answer->presence == Presence::OnDevices) return was_back();
  Libraries libraries{process, Libraries::For::Return};
  const auto lock = lock_for_checkpoint(process, share::Deadline::after(a_while));
  if (!lock.ok()) return failed(lock.error().text());
  // Another command may have brought it back while this one waited.
  const Told now = tell(ask, ControlWhat::State);
  if (!now.answer) return failed(now.why);
  if (now.answer->presence == Presence::OnDevices) return was_back();
  auto& checkpoint = libraries.checkpoint();
  if (!checkpoint.ok()) return failed(checkpoint.error().text());
  const auto is_off = checkpoint->is_off();
  if (!is_off.ok()) return failed(is_off.error().text());
  if (*is_off) {
    const std::string why = why_no_room(libraries.nvml(), now.answer->left);
    if (!why.empty()) return failed(why, End::OffDevices);
  }
  const auto back = checkpoint->bring_back();
  if (!back.ok()) {
    const auto is_still_off = checkpoint->is_off();
    const bool needs_room = is_still_off.ok() && *is_still_off;
    return failed(back.error().text(), needs_room ? End::OffDevices : End::Unknown);
  }
  const Told told = tell(ask, ControlWhat::HasReturned);
  if (!told.answer) return failed(told.why);
  return {.end = End::OnDevices, .why = {}, .times = checkpoint->times()};
}

}  // namespace cuvmm::checkpoint
