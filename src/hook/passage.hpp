// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "engine/engine.hpp"
#include "engine/hook_bypass.hpp"

namespace cuvmm::hook {

// The steps of a door before and after the call itself, for calls that are not common. Out of line,
// because about a thousand doors share them.
class Passage {
 public:
  enum class Way : std::uint8_t {
    Natively,     // there is no engine: use native_function()
    Unannounced,  // straight to the driver: it is cuvmm's own call, or cuvmm is off
    Ended,        // the driver or the device was lost during a pause
    In,
  };
  enum class InAPause : std::uint8_t { Waits, GoesOn };

  // Only if way() is In may the caller make the program's call as a hooked one.
  Passage(Call call, InAPause in_a_pause, bool is_recorded);
  ~Passage();
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

  Way way() const { return way_; }
  Engine& engine() const { return *engine_; }
  std::uint64_t began() const { return began_; }  // in now_ns(); 0: the call is not recorded

 private:
  Engine* const engine_;
  Way way_ = Way::In;
  std::uint64_t began_ = 0;
  std::optional<HookBypass> bypass_;
  std::optional<CallBarrier::Pass> pass_;
};

}  // namespace cuvmm::hook
