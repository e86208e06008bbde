// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <span>

#include "base/options.hpp"
#include "engine/ending_contexts.hpp"
#include "engine/pause_tally.hpp"
#include "sched/kernel_facts.hpp"
#include "share/control.hpp"
#include "spill/chunk_exchange.hpp"
#include "spill/pause.hpp"
#include "spill/placement.hpp"
#include "spill/spill_ahead.hpp"

namespace cuvmm {

// Pauses and resumes the process, on request from within it or from other processes
// (engine/control_service.hpp). An upkeep thread pins host memory ahead of pauses and spilling,
// releases pinned memory that is not needed, and resumes the process if a failed pause left it
// paused.
class Control {
 public:
  // Keeps `ahead` bytes of host memory ready; other pinned memory is released after `idle` of
  // disuse.
  Control(const ProgramParts& dependencies, EndingContexts& ending_contexts, SizeLimit ahead,
          Duration idle = Duration{10'000'000})
      : memory_(dependencies.memory),
        ending_contexts_(ending_contexts),
        forget_ended_work_(dependencies.forget_ended_work),
        ahead_(ahead),
        idle_(idle),
        pauser_(dependencies),
        exchange_(pauser_.program()),
        placement_(dependencies, uses_),
        kernels_(dependencies.driver) {}

  // Before others can ask for pauses: keeps host memory ready, if that is wanted, and registers
  // shut_down() for the end of the process.
  void expect_pauses();
  // Starts the upkeep thread, which pins host memory before it is needed and releases it again.
  void start_looking_after_host();
  // Also lets the upkeep thread move heavily used spilled memory to the device, and other memory
  // off it.
  void start_placing() { places_.store(true); }
  // Cached parameter layouts of the program's kernels.
  KnownKernels& kernels() { return kernels_; }
  // For the end of the process, since the driver ends with it: refuses pauses, and waits up to one
  // second for the operation in progress. From then on, the upkeep thread pins and moves nothing. A
  // paused process can still be resumed; otherwise it could not exit.
  void shut_down();
  // From now on the process cannot be paused. A pause in progress ends as if it had been cancelled,
  // unless it is about to succeed.
  void refuse_pauses() { stays_out_.store(true); }
  // Whether the process is paused, or may be once the request in progress is over. After
  // refuse_pauses(), false stays false. Reads the request first: it publishes the pause before its
  // end.
  bool may_need_resume() const { return busy_.load() == Busy::Request || is_paused(); }
  // Whether anybody may still have a request for the process.
  bool may_be_asked() const { return !stays_out_.load() || may_need_resume(); }

  // What a command (or the program itself, by the C API) has paused, only a command resumes: the
  // node service may have paused it before, and finds that it is no longer its own.
  enum class Asker : std::uint8_t { Command, Service };
  Result<PauseReport> pause(Duration timeout, Strict strict, const PauseWatch& watch = {},
                            Asker asker = Asker::Command);
  // Refused while the process is off its devices, where a driver call would block. If a device
  // lacks memory, waits up to `within`, or until `is_wanted` returns false, for other programs of
  // the node service to make room.
  Result<PauseReport> resume(Partly partly, Asker asker = Asker::Command, Duration within = {},
                             const StillWanted& is_wanted = &always_wanted);
  // For a process that the service has paused: return_ahead() brings back as much memory as the
  // devices' leases have room for, ahead of the resume; leave_again() takes it off the devices
  // again. Both do nothing if another operation is in progress, or while the process is off its
  // devices.
  void return_ahead();
  void leave_again();
  // Answers another process that takes this one off its devices or brings it back: State,
  // LeaveDevices, HasLeft and HasReturned of share::ControlWhat.
  share::ControlAnswer agree(const share::ControlRequest& request);
  share::Presence presence() const { return presence_.load(); }
  share::LeftMemory left_memory() const;  // unless OnDevices
  // Memory that the pause has left on the devices, since others may use it.
  Size stayed_bytes() const { return stayed_bytes_.load(); }
  bool is_paused() const { return is_paused_.load(); }
  bool is_paused_by_command() const { return is_paused_by_command_.load(); }
  Size paused_bytes() const { return paused_bytes_.load(); }
  Size ready_bytes() const { return ready_bytes_.load(); }
  // Cold device memory that can be moved elsewhere, and the call that moves it. Zero if VMM_SPILL
  // does not allow that.
  Size cold_bytes(int device) const;
  Result<Size> move_out_cold(DeviceMemory& device, Size wanted, Duration within);
  // Make memory that the program manages itself exportable, or bring it in where it is spilled
  // (ChunkExchange). For a thread inside one of the program's calls; the call counts as outside the
  // barrier meanwhile. Both wait for a pause to end.
  Result<void> make_exportable(CUdeviceptr address, Duration within = exchanges_within);
  Result<void> bring_in(const ChunkExchange::Places& spilled, Duration within = exchanges_within);
  // Moves spilled memory in these ranges to its device, in place of memory that was used less
  // recently. For a thread inside one of the program's calls, as above. Returns whether all of them
  // are there: there may be no room, or the program cannot be held still. Preferred: gives up
  // sooner, and after that does not try again for a while.
  enum class Need : std::uint8_t { Preferred, Required };
  bool move_near(std::span<const AddressRange> ranges, Need need);
  static std::uint64_t longest_move_near_us(Need need);
  void rest_from_moving_near();  // no preferred move for a while
  // Counts only operations that found memory to move.
  const PauseTally& pauses() const { return pauses_; }
  const PauseTally& resumes() const { return resumes_; }
  const Placement& placement() const { return placement_; }
  // Of all devices. Takes a lock for each.
  ChunkCounters spilled() const;
  bool has_spilled() const;  // ever

 private:
  static constexpr Duration exchanges_within{5'000'000};

  enum class Busy : std::uint8_t { No, Request, Upkeep };
  class Alone;

  static void* run_upkeep_thread(void* control);
  static void shut_down_running();
  void shut_down_at_exit();
  // Return how long the thread may sleep.
  Duration run_upkeep();
  Duration resume_after_failure();
  bool look_after_host();
  void place();
  void publish();
  // Runs `change` once no other request is at work and no pause is on, with the calling thread
  // outside the barrier. Returns why it was not run; nullptr if it was.
  const char* change_memory(Duration within, const std::function<void()>& change);
  Result<void> exchange(const std::function<Result<bool>()>& is_done,
                        const std::function<Result<void>()>& attempt, Duration within);
  Size ahead_bytes() const;
  Result<void> leave_devices(const share::LeftMemory& expected);
  bool has_left_devices(const share::LeftMemory& left);
  void set_left(const share::LeftMemory& left);

  Memory& memory_;
  EndingContexts& ending_contexts_;
  const std::function<void()> forget_ended_work_;
  const SizeLimit ahead_;
  const Duration idle_;
  // Admits one operation at a time. Not a lock in the lock order: operations take all locks.
  std::atomic<Busy> busy_{Busy::No};
  std::atomic<bool> looks_after_host_{false};
  std::atomic<bool> stays_out_{false};
  std::atomic<pid_t> process_{0};  // the process that has its threads
  Pauser pauser_;
  ChunkExchange exchange_;  // used only under busy_
  SpillAhead spill_ahead_;  // for the upkeep thread only
  std::atomic<bool> places_{false};
  std::atomic<std::uint64_t> no_move_near_until_us_{0};
  std::uint64_t next_placing_us_ = 0;
  LastUses uses_;
  Placement placement_;  // changed only under busy_
  KnownKernels kernels_;
  // Leaves OnDevices only under busy_.
  std::atomic<share::Presence> presence_{share::Presence::OnDevices};
  std::array<std::atomic<std::uint32_t>, std::tuple_size_v<share::LeftMemory>> left_{};
  std::atomic<bool> is_paused_by_command_{false};  // changed only under busy_
  // Published copies for threads that do not hold busy_.
  std::atomic<bool> is_paused_{false};
  std::atomic<Size> paused_bytes_{0};
  std::atomic<Size> stayed_bytes_{0};
  std::atomic<Size> ready_bytes_{0};
  std::array<std::atomic<Size>, AccessSet::most_devices> cold_bytes_{};
  PauseTally pauses_;
  PauseTally resumes_;
};

}  // namespace cuvmm
