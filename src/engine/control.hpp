// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>

#include "base/options.hpp"
#include "engine/pause_tally.hpp"
#include "sched/kernel_facts.hpp"
#include "share/control.hpp"
#include "spill/pause.hpp"
#include "spill/placement.hpp"
#include "spill/spill_ahead.hpp"

namespace cuvmm {

// By which a process is paused and resumed: from within, and by a socket where VMM_CONTROL=on. A
// thread of its own has host memory ready for a pause and for what spills, and gives back what is
// not needed.
class Control {
 public:
  // Host memory for so much is kept ready; what else is pinned goes back when idle for so long.
  Control(const ProgramParts& dependencies, SizeLimit ahead, Duration idle = Duration{10'000'000})
      : memory_(dependencies.memory),
        ahead_(ahead),
        idle_(idle),
        pauser_(dependencies),
        placement_(dependencies, uses_),
        kernels_(dependencies.driver) {}

  // Starts the thread that serves the socket. Where it cannot be had, one line says so.
  void start();
  // Starts the thread that has memory pinned before it is needed, and gives it back.
  void start_looking_after_host();
  // That thread moves spilled memory to the device where it is used much, and other memory out.
  void start_placing() { places_.store(true); }
  // The parameters of kernels that were launched meanwhile.
  KnownKernels& kernels() { return kernels_; }
  // Nothing is pinned or moved any more, from the end of what is under way: for the end of the
  // process, since the driver ends with it. A paused process is still resumed, or it could not end.
  void stay_out();

  Result<PauseReport> pause(Duration timeout, Strict strict,
                            const StillWanted& is_wanted = &always_wanted);
  Result<PauseReport> resume(Partly partly);
  bool is_paused() const { return is_paused_.load(); }
  Size paused_bytes() const { return paused_bytes_.load(); }
  Size ready_bytes() const { return ready_bytes_.load(); }
  // Memory of the device that could lie elsewhere without being missed, and that is put there;
  // where VMM_SPILL does not allow that, none.
  Size cold_bytes(int device) const;
  Result<Size> move_out_cold(DeviceMemory& device, Size wanted, Duration within);
  // Those that have moved memory.
  const PauseTally& pauses() const { return pauses_; }
  const PauseTally& resumes() const { return resumes_; }
  const Placement& placement() const { return placement_; }
  // Of all devices; costs a lock for each.
  ChunkCounters spilled() const;

 private:
  enum class Busy : std::uint8_t { No, Request, Upkeep };
  class Alone;

  static void* serve(void* control);
  static void* look_after_host(void* control);
  static void stop_looking_after_host();
  // How long the thread may rest.
  Duration look_once();
  void place();
  void publish();
  Size ahead_bytes() const;
  share::ControlAnswer answer(const share::ControlRequest& request, const StillWanted& is_wanted);

  Memory& memory_;
  const SizeLimit ahead_;
  const Duration idle_;
  // One at a time. Not a lock of the order: what is called under it takes them all.
  std::atomic<Busy> busy_{Busy::No};
  std::atomic<bool> looks_after_host_{false};
  std::atomic<bool> stays_out_{false};
  pid_t process_ = 0;  // that has the thread
  Pauser pauser_;
  SpillAhead spill_ahead_;  // of the thread that looks after it alone
  std::atomic<bool> places_{false};
  std::uint64_t next_placing_us_ = 0;
  LastUses uses_;
  Placement placement_;  // the same
  KnownKernels kernels_;
  // As it says, for those who are not alone with it.
  std::atomic<bool> is_paused_{false};
  std::atomic<Size> paused_bytes_{0};
  std::atomic<Size> ready_bytes_{0};
  std::array<std::atomic<Size>, AccessSet::most_devices> cold_bytes_{};
  PauseTally pauses_;
  PauseTally resumes_;
};

}  // namespace cuvmm
