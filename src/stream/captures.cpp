// SPDX-License-Identifier: Apache-2.0
#include "stream/captures.hpp"

#include <sched.h>

#include <algorithm>

#include "base/clock.hpp"

namespace cuvmm {
namespace {

// After this time, the calls under CaptureBlock have reached the driver, even if one still waits
// for work there; nothing reports that directly. On a busy machine, elapsed time proves little
// because the other thread may not have been scheduled. So this thread's own CPU time counts as
// well: while it ran, another runnable thread ran too.
constexpr std::uint64_t longest_hold_ns = 100'000'000;
constexpr std::uint64_t longest_hold_run_ns = 20'000'000;
constexpr std::uint64_t last_resort_ns = 5'000'000'000;

std::uint64_t run_ns() {
  timespec run;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &run);
  return static_cast<std::uint64_t>(run.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(run.tv_nsec);
}

template <class List, class Which>
List take_from(List& all, Which which) {
  const auto taken = std::stable_partition(all.begin(), all.end(),
                                           [&](const auto& one) { return !which(one.origin); });
  List found{taken, all.end()};
  all.erase(taken, all.end());
  return found;
}

}  // namespace

std::optional<Captures::Origin> Captures::oldest() const {
  const Holding holding{lock_};
  if (origins_.empty()) return std::nullopt;
  return origins_.front().origin;
}

std::uint64_t Captures::began(const Origin& origin) {
  ever_.store(true, std::memory_order_release);
  std::uint64_t number = 0;
  {
    const Holding holding{lock_};
    number = ++last_number_;
    origins_.push_back({number, origin});
  }
  live_.fetch_add(1);
  if (held_off_.load() != 0) wait_for_blocking_calls();
  return number;
}

void Captures::never_began(std::uint64_t number) {
  const Holding holding{lock_};
  const auto gone = std::erase_if(origins_, [&](const Live& one) { return one.number == number; });
  live_.fetch_sub(static_cast<int>(gone), std::memory_order_acq_rel);
}

void Captures::ended(const Origin& origin) {
  const Holding holding{lock_};
  const auto found = std::find_if(origins_.begin(), origins_.end(),
                                  [&](const Live& one) { return one.origin.is(origin); });
  if (found == origins_.end()) return;
  origins_.erase(found);
  live_.fetch_sub(1, std::memory_order_acq_rel);
}

Captures::Ending::Ending(Captures& captures, CUstream stream) : captures_(captures) {
  if (!captures_.any()) return;
  const Holding holding{captures_.lock_};
  ending_ = take_from(captures_.origins_,
                      [&](const Origin& origin) { return origin.is({.handle = stream}); });
}

Captures::Ending::Ending(Captures& captures, CUcontext context) : captures_(captures) {
  if (!captures_.any() || context == nullptr) return;
  const Holding holding{captures_.lock_};
  ending_ = take_from(captures_.origins_,
                      [&](const Origin& origin) { return origin.context == context; });
}

Captures::Ending::~Ending() {
  if (ending_.empty()) return;
  const Holding holding{captures_.lock_};
  captures_.origins_.insert(captures_.origins_.begin(), ending_.begin(), ending_.end());
}

void Captures::Ending::is_over() {
  captures_.live_.fetch_sub(static_cast<int>(ending_.size()), std::memory_order_acq_rel);
  ending_.clear();
}

void Captures::wait_for_blocking_calls() const {
  const std::uint64_t began = now_ns();
  const std::uint64_t run_before = run_ns();
  while (held_off_.load() != 0) {
    const std::uint64_t passed = now_ns() - began;
    if (passed >= last_resort_ns) return;
    if (passed >= longest_hold_ns && run_ns() - run_before >= longest_hold_run_ns) return;
    ::sched_yield();
  }
}

}  // namespace cuvmm
