// SPDX-License-Identifier: Apache-2.0
#include "share/group_pause.hpp"

#include <algorithm>
#include <utility>

namespace cuvmm::share {
namespace {

constexpr std::uint64_t a_millisecond = 1'000'000;
// How long work may be in flight before it counts as waiting for other programs.
constexpr std::uint64_t shortest_patience = 50 * a_millisecond;
// How long a program waits for a step after its own time is over: others may be moving already.
constexpr std::uint64_t for_the_answer = 100 * a_millisecond;

}  // namespace

// Work that merely takes long looks like work that spins on other programs. If these ran on each
// time, the group would never stand still, so wait longer each time.
Result<void> pause_with_group(PauseCoordinator& coordinator, Duration within,
                              const PauseAttempt& attempt) {
  const std::uint64_t until = now_ns() + in_ns(within);
  const auto is_told = [&](GroupStep step) { return coordinator.step() == step; };
  for (std::uint64_t patience = shortest_patience;; patience *= 2) {
    while (is_told(GroupStep::Run) && coordinator.is_waiting() && now_ns() < until) {
      coordinator.wait();
    }
    if (!is_told(GroupStep::Run)) coordinator.forget_step();
    const std::uint64_t began = now_ns();
    bool has_reported = false;
    const Fellows fellows{.still_working =
                              [&] {
                                if (now_ns() - began < patience || is_told(GroupStep::Move))
                                  return true;
                                if (!std::exchange(has_reported, true)) coordinator.report(false);
                                return !coordinator.step();
                              },
                          .may_move =
                              [&] {
                                coordinator.report(true);
                                while (!coordinator.step() && coordinator.is_waiting() &&
                                       now_ns() < until + for_the_answer) {
                                  coordinator.wait();
                                }
                                return is_told(GroupStep::Move);
                              }};
    const Duration left{static_cast<Duration::rep>((until - std::min(until, began)) / 1000)};
    auto paused = attempt(left, fellows);
    if (paused.ok() || paused.error().kind != ErrorKind::TimedOut) return paused;
    if (now_ns() >= until || !coordinator.is_waiting() || is_told(GroupStep::Over)) return paused;
    if (!coordinator.step()) coordinator.wait();
  }
}

}  // namespace cuvmm::share
