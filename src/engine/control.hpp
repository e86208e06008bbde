// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>

#include "engine/watch.hpp"
#include "share/control.hpp"
#include "spill/pause.hpp"
#include "trace/futex.hpp"

namespace cuvmm {

// Makes the program's calls wait before they begin: all that touch memory or work. Who is in the
// middle of one goes on with it.
class HeldCalls final : public Watcher {
 public:
  explicit HeldCalls(Watch& watch) : watch_(watch) {}
  void hold();
  void let_go();
  CUresult before(const CallSite& site) override;

 private:
  Watch& watch_;
  FutexWord held_{0};
};

// By which a process is paused and resumed: from within, and by a socket where VMM_CONTROL=on.
class Control {
 public:
  // `is_scheduled`: whether somebody hands the driver calls that were taken before.
  Control(const Driver& driver, Memory& memory, Gate& gate, Watch& watch,
          std::function<bool()> is_scheduled = {});

  // Starts the thread that serves the socket. Where it cannot be had, one line says so.
  void start();

  Result<PauseReport> pause(Duration timeout, Strict strict);
  Result<PauseReport> resume(Duration timeout, Partly partly);

 private:
  static void* serve(void* control);
  share::ControlAnswer answer(const share::ControlRequest& request);

  HeldCalls held_calls_;
  const std::function<bool()> is_scheduled_;
  // One at a time. Not a lock of the order: what is called under it takes them all.
  std::atomic_flag is_busy_ = ATOMIC_FLAG_INIT;
  Pauser pauser_;
};

}  // namespace cuvmm
